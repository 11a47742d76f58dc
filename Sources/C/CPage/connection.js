// What the server sends.

function receiveStreams(entries) {
  const names = new Set(entries.map((entry) => entry.name));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    if (selected === name) deselect();
    removeNode(row);
    rows.delete(name);
  }
  for (const entry of entries) {
    const row = rows.get(entry.name) ?? makeRow(entry.name);
    if (refusal && entry.name === selected && row.entry.state !== entry.state) {
      refusal = "";
      setTimeout(restart);
    }
    row.entry = entry;
    show(row);
  }
  arrange();
  showHead();
  showView();
  if (selected) describe(rows.get(selected));
  else selectFromAddress();
}

const past = [];

function receiveStats(next) {
  const time = next.uptime_microseconds;
  keep(past, { time, ...next, by_stream: null });
  for (const counts of next.by_stream) {
    const row = rows.get(counts.name);
    if (!row) continue;
    keep(row.past, { time, events: counts.events_in, bytes: counts.bytes_in });
    row.counts = counts;
    row.entry.state = counts.state ?? row.entry.state;
    show(row);
  }
  stats = next;
  showHead();
  if (!["name", "source"].includes(order.key)) arrange(); else for (const group of groups.values()) sumUp(group);
  if (selected) describe(rows.get(selected));
}

function receiveHistory(history) {
  period = history.seconds;
  for (const { name, events = [], bytes = [] } of history.by_stream) {
    const row = rows.get(name);
    if (!row) continue;
    row.recent = { events: events.map((count) => count / period), bytes: bytes.map((count) => count / period) };
    show(row);
    if (row.isVisible) drawChart(row.chart, row.recent.events, "/s");
  }
  for (const group of groups.values()) sumUp(group);
  if (selected) drawDetail(rows.get(selected));
}

function receiveNewest(entries) {
  const found = new Map(entries.map((entry) => [entry.name, entry]));
  for (const row of rows.values()) {
    row.newest = found.get(row.name) ?? null;
    showValue(row);
  }
}

const count = (list, test) => list.reduce((sum, each) => sum + (test(each) ? 1 : 0), 0);

function showHead() {
  const all = [...rows.values()];
  let troubles = 0;
  for (const [id, test] of Object.entries(problems)) {
    const number = count(all, test), button = byId(id);
    troubles += number;
    setText(button.firstElementChild, String(number));
    button.className = number > 0 ? "bad" : "";
    button.setAttribute("aria-pressed", String(only === id));
  }
  setText(byId("version"), stats?.version ?? "");
  const both = (key, unit) => `${quantity(mean(past, key + "_in"), unit)} in, ${quantity(mean(past, key + "_out"), unit)} out`;
  const number = (value, unit) => value === undefined ? "" : quantity(value, unit);
  setFacts(byId("facts"), [
    ["Streams", String(rows.size)], ["Subscribers", number(stats?.subscribers)],
    ["Events", stats ? both("events", "/s") : ""], ["Data", stats ? both("bytes", "B/s") : ""],
    ["Connections", number(stats?.connections)], ["Memory", number(stats?.memory_bytes, "B")],
    ["Loop load", stats?.busy_microseconds ? loads() : ""], ["Uptime", stats ? duration(stats.uptime_seconds) : "–"],
  ]);
  setText(byId("trouble"), [
    stats?.configuration_error && `The configuration has errors, and a former one is served: ${stats.configuration_error}`,
    stats?.fleet?.startsWith("not") && `Fleet: ${stats.fleet}`,
  ].filter(Boolean).join("; "));
  showTitle(troubles);
}

// How busy each event loop is.
function loads() {
  const [first, last] = [past[0], past.at(-1)];
  return past.length < 2 ? "–" : last.busy_microseconds.map((busy, index) =>
    Math.round(Math.max(0, busy - first.busy_microseconds[index]) / (last.time - first.time) * 100) + "\u00a0%").join(", ");
}

function toggle(problem) {
  only = only === problem ? null : problem;
  showHead();
  arrange();
}

// The connection: one response for all that is shown, because a browser gives all tabs together six connections; only a
// stream that is filtered has one of its own, because a filter applies to a whole response. It is made anew each time, rather
// than continued, so that it begins with the present state. A hidden page has none.

let response = null, refusal = "", isPaused = false, filter = "";
let phase = "waiting", lostAt = null, problem = "", retryAt = 0, delay = 1000, receivedAt = 0;

const encoded = (name) => name.split("/").map(encodeURIComponent).join("/").replaceAll("'", "%27");
const address = (names, starts, more = "") =>
  `/streams/${names.map(encoded).join(",")}?as=ndjson&ids=1${more}&from=${starts.join(",")}`;

function take() {
  if (response || document.hidden) return;
  response = new AbortController();
  stats = null;
  read(response.signal);
  if (selected !== null && filter && !isPaused) readFiltered(selected, response.signal);
}

function release() {
  response?.abort();
  response = null;
  if (document.hidden) setPhase("paused");
}

function restart() {
  release();
  take();
}

function setPhase(next) {
  phase = next;
  if (next !== "waiting") showPhase();  // that is shown if it lasts
}

function showPhase() {
  const wait = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  const lost = lostAt && `Disconnected since ${lostAt.toLocaleTimeString()}`;
  const text = { waiting: lost ?? "Waiting for a connection", live: "Live", paused: "Paused while hidden",
    lost: problem ? `Refused: ${problem}` : lost }[phase];
  setText(byId("status"), text);
  byId("status").className = phase === "waiting" && lost ? "lost" : phase;
  setText(byId("retry"), phase === "lost" ? `Next attempt in ${wait} s` : phase === "waiting" && lost
    ? "Waiting for a connection" : "");
  document.querySelector("#streams table").className = phase === "live" ? "" : "old";
  showTitle();
}

let troubles = 0;

function showTitle(next = troubles) {
  troubles = next;
  document.title = phase === "live" ? (troubles > 0 ? `(${troubles}) streamd` : "streamd")
    : phase === "waiting" && !lostAt ? "streamd" : phase === "paused" ? "streamd (paused)" : "streamd (disconnected)";
}

const pause = (milliseconds, signal) => new Promise((done) => {
  setTimeout(done, milliseconds);
  signal.addEventListener("abort", done);
});

async function read(signal) {
  while (!signal.aborted) {
    const name = refusal || filter || isPaused ? null : selected, hasClients = view === "clients" && !clientsRefusal;
    setPhase("waiting");
    problem = "";
    let wait = delay;
    try {
      const answer = await fetch(requestFor(name, hasClients), { signal, cache: "no-store", headers: authorization() });
      if (answer.ok) {
        noteToken(answer.headers.has("WWW-Authenticate"));
        await readLines(answer.body, name, signal);
      } else {
        const detail = (await answer.json()).detail ?? answer.statusText;
        if (hasClients && answer.status !== 503) {
          refuseClients(detail);
          continue;
        }
        const isForToken = answer.status === 401;
        if (isForToken && refusedToken !== token) [refusedToken, byId("access").open] = [token, true];
        if (name !== null && answer.status !== 503 && !(isForToken && token)) {
          refuse(detail);
          continue;
        }
        problem = detail;
        wait = Math.max(wait, 1000 * Math.min(60, Number(answer.headers.get("Retry-After")) || 0));
      }
    } catch {}
    if (signal.aborted) return;
    if (name !== null && rows.get(name)?.entry.state === "failed") {  // which ends the response
      refuse("The stream has failed");
      continue;
    }
    lostAt ??= new Date();
    retryAt = Date.now() + wait;
    setPhase("lost");
    delay = Math.min(delay * 2, 10000);
    await pause(wait, signal);
  }
}

// Reads the selected stream as far as it fits the filter.
async function readFiltered(name, signal) {
  while (!signal.aborted) {
    try {
      const more = `&on_lag=latest&where=${encodeURIComponent(filter)}`;
      const answer = await fetch(address([name], [start(rows.get(name))], more),
        { signal, cache: "no-store", headers: authorization() });
      if (!answer.ok) {
        const { detail } = await answer.json();
        if (!signal.aborted) setText(byId("events-status"), detail ?? answer.statusText);
        if (answer.status !== 503) return;
      } else {
        await readLines(answer.body, name, signal);
      }
    } catch {}
    if (!signal.aborted) await pause(2000, signal);
  }
}

function requestFor(name, hasClients) {
  const names = ["$streams", "$stats", "$history", "$newest", ...(hasClients ? ["$clients"] : [])];
  const starts = names.map(() => "latest");
  if (name !== null) {
    names.push(name);
    starts.push(start(rows.get(name)));
  }
  return address(names, starts, "&on_lag=latest");
}

// The token is in the storage of this tab alone, also over a reload; a browser may refuse the storage.

const storageKey = "streamd-token";
let token = "", refusedToken = null;
try { token = sessionStorage.getItem(storageKey) ?? ""; } catch {}
if (!/^[\x21-\x7e]*$/.test(token)) token = "";  // what a header cannot have

const authorization = () => token ? { Authorization: `Bearer ${token}` } : {};

// The query of a WebSocket, with which a browser sends no token: a ticket admits it.
async function ticketQuery() {
  if (!token) return "";
  const answer = await fetch("/tickets", { method: "POST", cache: "no-store", headers: authorization() });
  return answer.ok ? `?ticket=${(await answer.json()).ticket}` : "";
}

// A daemon with tokens says so in its response to a client without one.
let lacksToken = false;

function noteToken(isLacking) {
  if (isLacking && !lacksToken) byId("access").open = true;
  lacksToken = isLacking;
  setText(byId("token-hint"), isLacking ? "This page has no token: it shows what every client may read." : "");
}

function showToken() {
  byId("forget").hidden = !token;
  setText(byId("token-status"), token ? "Sent with each request" : "");
  byId("access").open ||= token !== "";
}

function setToken(text) {
  token = text;
  try { sessionStorage.setItem(storageKey, token); } catch {}
  byId("token").value = "";
  showToken();
  if (selected !== null) deselect();
  clearEvents();
  for (const [name, row] of rows) {
    removeNode(row);
    rows.delete(name);
  }
  arrange();
  byId("token").focus();
  [refusal, clientsRefusal, delay] = ["", "", 1000];
  restart();
}

// The selected stream cannot be read: the others are shown without it.
function refuse(detail) {
  refusal = detail;
  setText(byId("events-status"), detail);
}

// Reads as fast as lines come, since a slow reader delays a stream that drops nothing.
async function readLines(body, name, signal) {
  receivedAt = Date.now();
  let events = [], size = 0, rest = "";
  if (name !== null) clearEvents();
  const flush = () => {
    if (events.length > 0 && name === selected) showEvents(events);
    [events, size] = [[], 0];
  };
  const timer = setInterval(flush, 250);
  signal.addEventListener("abort", () => clearInterval(timer));
  try {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return;
      const lines = value.split("\n");
      lines[0] = rest + lines[0];
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith('{"stream":"$')) {
          receive(JSON.parse(line));
        } else {
          events.push(line);
          size += line.length;
        }
      }
      if (size > mostCharacters) flush();
    }
  } finally {
    clearInterval(timer);
  }
}

function receive({ stream, data }) {
  receivedAt = Date.now();
  if (stream === "$streams") receiveStreams(data);
  if (stream === "$history") receiveHistory(data);
  if (stream === "$newest") receiveNewest(data.by_stream);
  if (stream === "$clients") receiveClients(data);
  if (stream !== "$stats") return;
  receiveStats(data);
  if (phase === "live") return;
  [lostAt, delay] = [null, 1000];
  setPhase("live");
}
