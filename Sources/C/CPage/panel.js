// One stream.

const keys = new Map();

// A state with few keys is read as such, as a table; otherwise the newest events.
const hasTable = (row) => row.entry.key !== undefined && !row.entry.incomplete_since && row.entry.keys <= mostKeys;
const start = (row) => hasTable(row) ? "state" : "-20";

function describe(row) {
  const { entry, counts } = row, upstream = counts?.upstream;
  setText(byId("description"), [entry.description, entry.type, entry.source].filter(Boolean).join(" · "));
  setFacts(byId("detail-facts"), [
    ["State", stateText(row), isBad(row) || isStale(row)],
    ["Reason", entry.message ?? ""],
    ["Next attempt", until(upstream?.next_attempt)],
    ["Last success", ago(upstream?.last_answer)],
    ["Attempts", upstream ? `${quantity(upstream.attempts)}, ${quantity(upstream.failures)} failed` : ""],
    ["Subscribers", quantity(counts?.subscribers)],
    ["Lag", lagText(row)],
    ["Events", counts ? `${quantity(counts.events_in)} in, ${quantity(counts.events_out)} out` : ""],
    ["Newest event", [ago(counts?.newest) || "none", fresh(counts)].filter(Boolean).join(", ")],
    ["Keys", entry.keys === undefined ? "" : quantity(entry.keys) + (entry.key ? ` at ${entry.key}` : "")],
    ["State of keys", quantity(counts?.state_bytes, "B").replace("–", "")],
    ["Malformed", entry.malformed > 0 ? quantity(entry.malformed) : "", true],
    ["Errors", entry.errors > 0 ? quantity(entry.errors) : "", true],
    ["Fleet", fleet(entry.fleet).replace("fleet: ", "")],
  ]);
  const quoted = /^[\w.][\w./-]*$/.test(row.name) ? row.name : `'${row.name.replaceAll("'", "'\\''")}'`;
  const header = token ? '-H "Authorization: Bearer $TOKEN" ' : "";
  setExactText(byId("command"), `curl -N ${header}'${location.origin}${address([row.name], [start(row)])}'`);
  setExactText(byId("local-command"), `streamctl sub ${quoted} ${hasTable(row) ? "--from state" : "--last 20"}`);
  byId("keys").hidden = !hasTable(row);
  byId("publish-form").hidden = entry.source !== "publish";
  byId("refresh").hidden = !upstream;
}

function drawDetail(row) {
  drawChart(byId("events-chart"), row.recent.events, "/s");
  drawChart(byId("bytes-chart"), row.recent.bytes, "B/s");
}

function select(name) {
  deselect();
  setView("streams");
  [selected, refusal, filter, isPaused] = [name, "", "", false];
  byId("where").value = "";
  for (const id of ["missing", "control-status", "publish-status"]) setText(byId(id), "");
  showPause();
  const row = rows.get(name);
  if (row.node) {
    row.node.classList.add("selected");
    row.button.setAttribute("aria-expanded", "true");
  }
  setText(byId("detail-name"), name);
  describe(row);
  drawDetail(row);
  clearEvents();
  byId("detail").hidden = false;
  byId("detail-name").focus();
  history.replaceState(null, "", "#" + encodeURIComponent(name));
  restart();
}

function deselect() {
  const row = rows.get(selected);
  if (selected !== null) setTimeout(() => { if (selected === null) restart(); });  // unless another one is selected
  selected = null;
  byId("detail").hidden = true;
  if (!row) return;
  if (row.node) {
    row.node.classList.remove("selected");
    row.button.setAttribute("aria-expanded", "false");
    row.button.focus();
  }
  history.replaceState(null, "", location.pathname);
}

function selectFromAddress() {
  let name = "";
  try { name = decodeURIComponent(location.hash.slice(1)); } catch {}
  if (rows.has(name) && name !== selected) select(name);
  setText(byId("missing"), !name || rows.has(name) ? ""
    : `There is no stream "${name}" that this client may read or publish to.`);
}

function showPause() {
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  setText(byId("pause"), isPaused ? "Resume" : "Pause");
}

// Without the stream in its response, the page reads nothing that it does not show. The newest events follow a pause.
function togglePause() {
  isPaused = !isPaused;
  showPause();
  setText(byId("events-status"), isPaused ? "Paused: the stream is not read" : "");
  restart();
}

function applyFilter() {
  filter = byId("where").value.trim();
  [refusal, isPaused] = ["", false];
  showPause();
  clearEvents();
  restart();
}

async function publish() {
  const row = rows.get(selected), status = byId("publish-status");
  setText(status, "");
  try {
    const answer = await fetch(`/streams/${encoded(row.name)}`,
      { method: "POST", body: byId("value").value, cache: "no-store", headers: authorization() });
    const { accepted, detail } = await answer.json();
    if (row.name !== selected) return;
    setText(status, answer.ok ? `Stored at ${clock(new Date())}${accepted === 1 ? "" : `: ${accepted} values`}` : detail);
    if (answer.ok) byId("value").value = "";
  } catch {
    setText(status, "No answer: it is unknown whether the value was stored");
  }
}

async function refresh() {
  const name = selected;
  setText(byId("control-status"), "");
  const sentence = await control({ refresh: name });
  if (name === selected) setText(byId("control-status"), sentence || "The source asks its upstream");
}

// A browser gives the clipboard to pages of a secure origin only; others copy what is selected.
async function copy(text, node, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(node);
    document.execCommand("copy");
  }
  setText(button, "Copied");
  setTimeout(() => setText(button, "Copy"), 2000);
}

function copyEvents() {
  const text = [...document.querySelectorAll("#events pre")].map((node) => node.textContent).join("\n");
  return copy(text, byId("events"), byId("copy-events"));
}

function clearEvents() {
  byId("events").replaceChildren();
  byId("key-rows").replaceChildren();
  keys.clear();
  setText(byId("keys-status"), "");
  setText(byId("events-status"), "No event yet");
}

function shorten(text, length) {
  return text.length > length ? text.slice(0, length) + `… (${text.length} characters)` : text;
}

function showEvents(lines) {
  const row = rows.get(selected), list = byId("events"), isTable = hasTable(row);
  setText(byId("events-status"), "");
  lines.slice(isTable ? 0 : -shownEvents).forEach((line, index, all) => {
    let event, text;
    try {
      event = JSON.parse(line);
      const raw = line.slice(line.indexOf('"data":') + 7, -1);  // as it is: numbers keep their digits
      text = event.data_base64 !== undefined ? `base64: ${event.data_base64}`
        : typeof event.data === "string" ? event.data : raw;
    } catch {
      return;
    }
    if (isTable) setKey(row.entry, event, text);
    if (index < all.length - shownEvents) return;
    const item = make("li");
    const head = make("span", "", `${clock(event.time)} · ${event.id}`);
    head.title = String(event.time);
    item.append(head, make("pre", "", shorten(text, shownCharacters)));
    list.prepend(item);
  });
  while (list.childElementCount > shownEvents) list.lastChild.remove();
  if (isTable) showKeys();
}

// The value at a JSON Pointer; undefined: there is none.
function valueAt(pointer, data) {
  return pointer.split("/").slice(1).reduce((value, step) => {
    step = step.replaceAll("~1", "/").replaceAll("~0", "~");
    const isThere = Array.isArray(value) ? /^\d+$/.test(step) : value !== null && typeof value === "object";
    return isThere && Object.hasOwn(value, step) ? value[step] : undefined;
  }, data);
}

function setKey(entry, event, text) {
  const key = valueAt(entry.key, event.data);
  if (!["string", "number", "boolean"].includes(typeof key)) return;
  const name = JSON.stringify(key);
  if (entry.tombstone !== undefined && valueAt(entry.tombstone, event.data) === true) {
    keys.delete(name);
  } else if (keys.has(name) || keys.size < mostKeys) {
    keys.set(name, { key: String(key), time: event.time, text });
  }
}

function showKeys() {
  const sorted = [...keys.values()].sort((one, other) => collator.compare(one.key, other.key));
  const body = byId("key-rows");
  sorted.slice(0, shownKeys).forEach((entry, index) => {
    const row = body.children[index] ?? body.appendChild(make("tr"));
    if (!row.firstChild) {
      row.append(make("th"), make("td"), make("td", "number"));
      row.firstChild.scope = "row";
      row.setAttribute("role", "row");
      for (const cell of row.children) cell.setAttribute("role", cell === row.firstChild ? "rowheader" : "cell");
    }
    setText(row.children[0], shorten(entry.key, 200));
    setText(row.children[1], shorten(entry.text, 400));
    setText(row.children[2], clock(entry.time));
  });
  while (body.childElementCount > Math.min(sorted.length, shownKeys)) body.lastChild.remove();
  setText(byId("keys-status"), sorted.length > shownKeys ? `The first ${shownKeys} of ${sorted.length}` : "");
}

makeHeader();
byId("filter").addEventListener("input", arrange);
byId("close").addEventListener("click", deselect);
for (const id of Object.keys(problems)) byId(id).addEventListener("click", () => toggle(id));
for (const name of ["streams", "clients"]) byId(`show-${name}`).addEventListener("click", () => setView(name));
for (const [id, action] of [["publish-form", publish], ["where-form", applyFilter]]) {
  byId(id).addEventListener("submit", (event) => {
    event.preventDefault();
    action();
  });
}
byId("pause").addEventListener("click", togglePause);
byId("refresh").addEventListener("click", refresh);
byId("copy-events").addEventListener("click", copyEvents);
byId("copy-command").addEventListener("click", () =>
  copy(byId("command").textContent, byId("command"), byId("copy-command")));
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value);
});
byId("forget").addEventListener("click", () => setToken(""));
showToken();
for (const id of ["events-chart", "bytes-chart"]) makeChart(byId(id));
addEventListener("keydown", (event) => { if (event.key === "Escape" && selected !== null) deselect(); });
addEventListener("hashchange", selectFromAddress);
addEventListener("pagehide", release);
addEventListener("pageshow", take);
document.addEventListener("visibilitychange", () => document.hidden ? release() : take());
// A reload needs a connection before the page is hidden; if the page stays, a new one is made.
addEventListener("beforeunload", () => { release(); setTimeout(take, 2000); });
setInterval(() => {
  if (phase === "live" && Date.now() - receivedAt > silentTime) {
    lostAt = new Date();
    restart();
  }
  showPhase();
}, 1000);
take();
