import { Invalid } from "./errors.js";

const SYSTEM_SOCKET = "/run/streamd/streamd.sock";

/** Where the daemon listens, as net.connect() has it. */
export function addressOf({ socket, host, port }) {
  if (host === undefined && port === undefined) return parsed(socket ?? (process.env.STREAMD_SOCKET || SYSTEM_SOCKET));
  if (socket !== undefined) throw new TypeError("socket excludes host and port");
  if (!Number.isInteger(port) || port < 1 || port > 65535) throw new Invalid(`port: ${port} is not between 1 and 65535`);
  return { host: host ?? "localhost", port };
}

/** $STREAMD_SOCKET has these forms for all clients. */
function parsed(text) {
  const path = text.replace(/^unix:/, "");
  if (path.startsWith("/")) return { path };
  const [, address, name, port] = /^(?:tcp:)?(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+)):(\d{1,5})$/.exec(text) ?? [];
  if (port < 1 || port > 65535 || port === undefined) {
    throw new Invalid(`"${text}" is no address: expected an absolute path, unix:/path, tcp:host:port or host:port`);
  }
  return { host: address ?? name, port: Number(port) };
}
