// What the server sends.

function receiveStreams(entries) {
  const names = new Set(entries.map((entry) => entry.name));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    if (selected === name) deselect();
    observer.unobserve(row.node);
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
  [byId("streams").hidden, byId("hint").hidden] = [rows.size === 0, rows.size > 0];
  if (selected) describe(rows.get(selected));
  else selectFromAddress();
}

function receiveStats(next) {
  const elapsed = stats ? (next.uptime_microseconds - stats.uptime_microseconds) / 1e6 : 0;
  for (const counts of next.by_stream) {
    const row = rows.get(counts.name);
    if (!row) continue;
    const change = (key) => Math.max(0, counts[key] - row.counts[key]) / elapsed;
    row.rates = elapsed > 0 && row.counts ? { events: change("events_in"), bytes: change("bytes_in") } : null;
    row.counts = counts;
    row.entry.state = counts.state ?? row.entry.state;
    show(row);
  }
  const load = elapsed > 0 && next.busy_microseconds && stats.busy_microseconds
    ? next.busy_microseconds.map((busy, index) =>
      Math.round(Math.max(0, busy - stats.busy_microseconds[index]) / elapsed / 1e4) + "\u00a0%").join(", ") : "–";
  stats = { ...next, load };
  showHead();
  if (!["name", "source"].includes(order.key)) arrange();
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
  if (selected) drawDetail(rows.get(selected));
}

const count = (list, test) => list.reduce((sum, each) => sum + (test(each) ? 1 : 0), 0);

function showHead() {
  const all = [...rows.values()], failing = count(all, isBad), stale = count(all, (row) => !isBad(row) && isStale(row));
  setText(byId("version"), stats?.version ?? "");
  setFacts(byId("facts"), [
    ["Failing", String(failing), failing > 0], ["Stale", String(stale), stale > 0], ["Streams", String(rows.size)],
    ["Uptime", stats ? duration(stats.uptime_seconds) : "–"],
    ["Connections", stats?.connections === undefined ? "" : quantity(stats.connections)],
    ["Loop load", stats?.busy_microseconds ? stats.load : ""],
  ]);
  setText(byId("trouble"), [
    stats?.configuration_error && `The configuration has errors, and a former one is served: ${stats.configuration_error}`,
    stats?.fleet?.startsWith("not") && `Fleet: ${stats.fleet}`,
  ].filter(Boolean).join("; "));
  showTitle(failing + stale);
}

// The connection: one response for all that is shown, because a browser gives all tabs together six connections. It is
// made anew each time, rather than continued, so that it begins with the present state. A hidden page has none.

let response = null, refusal = "";
let phase = "waiting", lostAt = null, problem = "", retryAt = 0, delay = 1000, receivedAt = 0;

const encoded = (name) => name.split("/").map(encodeURIComponent).join("/").replaceAll("'", "%27");
const address = (names, starts, more = "") =>
  `/streams/${names.map(encoded).join(",")}?as=ndjson&ids=1${more}&from=${starts.join(",")}`;

function take() {
  if (response || document.hidden) return;
  response = new AbortController();
  stats = null;
  read(response.signal);
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
    const name = refusal ? null : selected;
    setPhase("waiting");
    problem = "";
    let wait = delay;
    try {
      const answer = await fetch(requestFor(name), { signal, cache: "no-store", headers: authorization() });
      if (answer.ok) {
        await readLines(answer.body, name, signal);
      } else {
        const detail = (await answer.json()).detail ?? answer.statusText;
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

function requestFor(name) {
  const [names, starts] = [["$streams", "$stats", "$history"], ["latest", "latest", "latest"]];
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
    observer.unobserve(row.node);
    rows.delete(name);
  }
  arrange();
  byId("token").focus();
  [refusal, delay] = ["", 1000];
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
  if (stream !== "$stats") return;
  receiveStats(data);
  if (phase === "live") return;
  [lostAt, delay] = [null, 1000];
  setPhase("live");
}
