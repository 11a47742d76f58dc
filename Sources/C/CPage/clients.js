// The views: the streams, or the clients, which root and the daemon's user see. Commands go over RSocket in a WebSocket.

let view = "streams", clientsRefusal = "", outcome = "";

function setView(next) {
  if (view === next) return;
  if (selected !== null) {
    deselect();
    byId(`show-${next}`).focus();
  }
  [view, clientsRefusal] = [next, ""];
  setText(byId("clients-status"), "");
  byId("client-rows").replaceChildren();
  for (const name of ["streams", "clients"]) byId(`show-${name}`).setAttribute("aria-pressed", String(name === view));
  showView();
  restart();
}

function showView() {
  byId("clients").hidden = view !== "clients";
  byId("streams").hidden = view !== "streams" || rows.size === 0;
  byId("hint").hidden = view !== "streams" || rows.size > 0;
}

function refuseClients(detail) {
  clientsRefusal = detail;
  byId("client-rows").replaceChildren();
  setText(byId("clients-status"), detail);
}

function who(client) {
  const process = client.command ? `${client.command} (${client.process})` : client.process ? `process ${client.process}` : "";
  return [`${client.id}: ${client.protocol}`, client.user === undefined ? "" : `uid ${client.user}`, process,
    client.token && `token ${client.token}`, client.address].filter(Boolean).join(", ");
}

function uses(client) {
  const lines = (client.subscriptions ?? []).map(({ stream, lag, credit, map }) =>
    `${stream}: lag ${quantity(lag)}, credit ${credit === undefined ? "unlimited" : quantity(credit)}${map ? ", map" : ""}`);
  if (client.publishes) lines.push(`publishes to ${client.publishes.join(", ")}`);
  if (client.more) lines.push(`${client.more} more`);
  return lines.join("\n");
}

function receiveClients({ clients, others = 0 }) {
  const body = byId("client-rows"), nodes = new Map([...body.children].map((node) => [node.dataset.id, node]));
  const list = [...clients].sort((one, other) => other.lag - one.lag || one.id - other.id).slice(0, shownClients);
  const hidden = clients.length - list.length + others;
  let next = body.firstChild;
  for (const client of list) {
    const node = nodes.get(String(client.id)) ?? makeClient(client.id);
    const texts = [who(client), uses(client), quantity(client.lag), quantity(client.bytes_out, "B"),
      client.since ? shortest(age(client.since)) : ""];
    texts.forEach((text, index) => setText(node.children[index], text));
    if (node === next) next = next.nextSibling; else body.insertBefore(node, next);
  }
  while (next) {
    const removed = next;
    next = next.nextSibling;
    removed.remove();
  }
  setText(byId("clients-status"), outcome
    || (hidden > 0 ? `The ${list.length} with the most lag; ${hidden} more` : `${list.length} connected`));
}

function makeClient(id) {
  const node = make("tr");
  node.dataset.id = id;
  node.setAttribute("role", "row");
  for (const className of ["", "uses", "number", "number wide", "number wide"]) {
    node.appendChild(make(className ? "td" : "th", className)).setAttribute("role", className ? "cell" : "rowheader");
  }
  node.firstChild.scope = "row";
  const cell = node.appendChild(make("td"));
  cell.setAttribute("role", "cell");
  const button = cell.appendChild(make("button", "", "Kick"));
  button.type = "button";
  button.setAttribute("aria-label", `Kick client ${id}`);
  button.addEventListener("click", () => kick(id, button));
  return node;
}

// The first press asks, the second one within a few seconds does it.
async function kick(id, button) {
  if (button.textContent === "Kick") {
    button.textContent = "Really?";
    setTimeout(() => { button.textContent = "Kick"; }, 4000);
    return;
  }
  button.textContent = "Kick";
  const sentence = await control({ kick: id });
  outcome = `Client ${id}: ${sentence || "its connection has ended"}`;
  if (!clientsRefusal) setText(byId("clients-status"), outcome);
  setTimeout(() => { outcome = ""; }, 5000);
}

// Gives a command, and returns the sentence with which it was refused; empty: it has taken effect.
async function control(command) {
  const query = await ticketQuery().catch(() => "");
  return new Promise((done) => {
    const socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/rsocket" + query);
    const finish = (sentence) => {
      done(sentence);
      socket.close();
    };
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => {
      socket.send(setupFrame());
      socket.send(requestFrame("$control", JSON.stringify(command)));
    });
    socket.addEventListener("message", ({ data }) => {
      const frame = new DataView(data), type = frame.getUint16(4) >> 10;
      if (type === 0x0b) finish(new TextDecoder().decode(data.slice(10)) || "refused");
      if (type === 0x0a) finish("");
    });
    socket.addEventListener("close", () => finish("no connection for commands"));
    setTimeout(() => finish("no answer within 10 s"), 10000);
  });
}

// Frames are those of RSocket 1.0: stream, type and flags, then the fields of the type; the metadata of a request is the name.

function frame(stream, typeAndFlags, ...parts) {
  const bytes = [stream >>> 24, stream >>> 16, stream >>> 8, stream, typeAndFlags >>> 8, typeAndFlags];
  return new Uint8Array([...bytes, ...parts.flatMap((part) => [...part])]);
}

function setupFrame() {
  const type = (name) => [name.length, ...new TextEncoder().encode(name)];
  const [version, interval, lifetime] = [[0, 1, 0, 0], [0, 0, 0x4e, 0x20], [0, 1, 0x5f, 0x90]];
  return frame(0, 0x01 << 10, version, interval, lifetime, type("text/plain"), type("application/json"));
}

function requestFrame(name, data) {
  const [metadata, body] = [name, data].map((text) => new TextEncoder().encode(text));
  return frame(1, 0x04 << 10 | 0x100, [0, 0, metadata.length], metadata, body);
}
