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
  setText(byId("command"), `curl -N ${header}'${location.origin}${address([row.name], [start(row)])}'`);
  setText(byId("local-command"), `streamctl sub ${quoted} ${hasTable(row) ? "--from state" : "--last 20"}`);
  byId("keys").hidden = !hasTable(row);
}

function drawDetail(row) {
  drawChart(byId("events-chart"), row.recent.events, "/s");
  drawChart(byId("bytes-chart"), row.recent.bytes, "B/s");
}

function select(name) {
  deselect();
  [selected, refusal] = [name, ""];
  const row = rows.get(name);
  row.node.className = "selected";
  row.button.setAttribute("aria-expanded", "true");
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
  row.node.className = "";
  row.button.setAttribute("aria-expanded", "false");
  row.button.focus();
  history.replaceState(null, "", location.pathname);
}

function selectFromAddress() {
  let name = "";
  try { name = decodeURIComponent(location.hash.slice(1)); } catch {}
  if (rows.has(name) && name !== selected) select(name);
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
    item.append(make("span", "", `${event.id} · ${event.time}`), make("pre", "", shorten(text, shownCharacters)));
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
    }
    setText(row.children[0], shorten(entry.key, 200));
    setText(row.children[1], shorten(entry.text, 400));
    setText(row.children[2], new Date(entry.time).toLocaleTimeString());
  });
  while (body.childElementCount > Math.min(sorted.length, shownKeys)) body.lastChild.remove();
  setText(byId("keys-status"), sorted.length > shownKeys ? `The first ${shownKeys} of ${sorted.length}` : "");
}

makeHeader();
byId("filter").addEventListener("input", arrange);
byId("close").addEventListener("click", deselect);
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
