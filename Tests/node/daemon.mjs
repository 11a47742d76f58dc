// A daemon for a file of tests. The folder of streamd is in $STREAMD_BUILT, a port for it in $STREAMD_PORT.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

export const TOKEN = "alice-0123456789";

// `count` ends; nothing is published to `never`; `brief` and `table` drop events, `full` refuses them; `small` limits values;
// `private` and `guarded` admit another user, `private` also a token. `few/{x}` has one stream at a time.
// Nobody answers what `answers/{id}` asks.
const STREAMS = (stranger) => `
[streams.notes]
publish = true
replay = 3
keep = "disk"
buffer = { events = 1000000, bytes = "256MiB" }

[streams.brief]
publish = true
buffer = { events = 4 }

[streams.full]
publish = true
overflow = "block"
block_timeout = "never"
buffer = { events = 4 }

[streams.small]
publish = true
buffer = { events = 4, bytes = "64KiB" }

[streams.pages]
publish = true
buffer = { events = 1000, bytes = "128MiB" }

[streams.quotes]
publish = true
key = ".symbol"
tombstone = ".delisted"
keep = "disk"

[streams.table]
publish = true
key = ".symbol"
buffer = { events = 4 }

[streams.count]
timer = { every = "1ms", times = 3 }
replay = 3

[streams.never]
publish = true

[streams.private]
timer = { every = "10ms" }
read = ["uid:${stranger}"]

[streams.guarded]
publish = true
write = ["uid:${stranger}"]

[streams."rooms/{room}"]
publish = true

[streams."answers/{id}"]
http = { url = "http://127.0.0.1:1/", method = "POST", stream = "sse", body = "request" }
read = ["owner"]

[streams."few/{x}"]
publish = true
streams = 1
`;

/** Its streams stay over a kill. */
export class Daemon {
  #process;

  static async start({ listens = false } = {}) {
    const daemon = new Daemon();
    daemon.folder = await mkdtemp(join(tmpdir(), "streamd-node-"));
    daemon.socket = join(daemon.folder, "streamd.sock");
    daemon.port = Number(process.env.STREAMD_PORT);
    const tcp = `listen = ["127.0.0.1:${daemon.port}"]`;
    const tokens = '\n[[tokens]]\nname = "alice"\ncredential = "alice"\nread = ["private"]\n';
    const limits = 'max_requests_per_connection = 16\nmax_request = "1MiB"\n';
    const server = `[server]\nsocket = "${daemon.socket}"\nstate = "${daemon.folder}"\n${limits}`;
    await writeFile(join(daemon.folder, "alice"), TOKEN);
    await writeFile(join(daemon.folder, "streamd.toml"),
      `${server}${listens ? tcp : ""}\n${STREAMS(process.getuid() + 1)}${listens ? tokens : ""}`);
    await daemon.begin();
    return daemon;
  }

  /**
   * Returns a function that restarts the daemon as a service manager does, so that its connections continue. It is
   * started by that manager, and not by begin().
   */
  async manage() {
    const words = ["-B", fileURLToPath(new URL("manager.py", import.meta.url)), join(process.env.STREAMD_BUILT, "streamd")];
    this.#process = spawn("python3", [...words, join(this.folder, "streamd.toml"), this.socket], {
      stdio: ["pipe", "pipe", "ignore"],
    });
    const lines = createInterface({ input: this.#process.stdout });
    await once(lines, "line");
    return async () => {
      this.#process.stdin.write("restart\n");
      await once(lines, "line");
    };
  }

  /** Returns once it serves, which is the first line of its log. */
  async begin() {
    this.#process = spawn(join(process.env.STREAMD_BUILT, "streamd"), ["--config", join(this.folder, "streamd.toml")], {
      stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, CREDENTIALS_DIRECTORY: this.folder, NOTIFY_SOCKET: "" },
    });
    const lines = createInterface({ input: this.#process.stderr });
    const [line] = await Promise.race([once(lines, "line"), once(this.#process, "exit")]);
    if (!String(line).includes(" serves ")) throw new Error(`streamd does not serve: ${line}`);
  }

  async #end(signal) {
    const exited = once(this.#process, "exit");
    this.#process.kill(signal);
    await exited;
  }

  kill() {
    return this.#end("SIGKILL");
  }

  stop() {
    return this.#end("SIGTERM");
  }

  async remove() {
    const isRunning = this.#process.exitCode === null && this.#process.signalCode === null;
    if (isRunning && this.#process.stdin) await Promise.all([once(this.#process, "exit"), this.#process.stdin.end()]);
    else if (isRunning) await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** A daemon for the tests of a file. */
export async function serve(options) {
  const daemon = await Daemon.start(options);
  after(() => daemon.remove());
  return daemon;
}

/** The first `count` items of an asynchronous iterator, which is not ended. */
export async function take(iterator, count) {
  const items = [];
  while (items.length < count) {
    const { done, value } = await iterator.next();
    if (done) break;
    items.push(value);
  }
  return items;
}

export const texts = (events) => events.map((event) => event.text());

export const numbers = (count, first = 1) => Array.from({ length: count }, (_, index) => String(first + index));

/** A signal that aborts once the present turn of the event loop, and some more, are over. */
export function soon(turns = 3) {
  const controller = new AbortController();
  const turn = () => (turns-- > 0 ? setImmediate(turn) : controller.abort());
  turn();
  return controller.signal;
}
