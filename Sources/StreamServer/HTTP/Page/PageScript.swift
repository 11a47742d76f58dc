extension Page {
  /// The script. Whatever comes from the server is set as text.
  static let script = #"""

    "use strict";
    const shownEvents = 50, shownCharacters = 4000, shownKeys = 200, mostKeys = 1000, mostCharacters = 4e6;
    const silentTime = 10000;
    const byId = (id) => document.getElementById(id);
    const rows = new Map();
    const collator = new Intl.Collator("en", { numeric: true });
    const isBad = (row) => ["failing", "failed"].includes(row.entry.state);
    const isStale = (row) => row.entry.stale_since !== undefined;
    const ranks = ["failed", "failing", "stale", "blocked", "waiting"];  // the others follow, by name
    let order = { key: "state", direction: 1 };
    let stats = null, period = 5, selected = null;

    // Columns: what a row shows, and what it is sorted by. Narrow windows show those that are always there.
    const columns = [
      { key: "name", title: "Stream", isAlways: true, value: (row) => row.name },
      { key: "state", title: "State", isAlways: true, value: rank, text: stateText },
      { key: "source", title: "Source", value: (row) => row.entry.source ?? "", text: (row) => row.entry.source ?? "" },
      { key: "events", title: "Events", isNumber: true, isAlways: true, value: (row) => rate(row, "events") ?? -1,
        text: (row) => quantity(rate(row, "events"), "/s") },
      { key: "chart", title: "Last 5 min", isNumber: true, isAlways: true,
        value: (row) => row.recent.events.reduce((sum, value) => sum + value, 0) },
      { key: "bytes", title: "Data", isNumber: true, value: (row) => rate(row, "bytes") ?? -1,
        text: (row) => quantity(rate(row, "bytes"), "B/s") },
      { key: "subscribers", title: "Subscribers", isNumber: true, value: (row) => row.counts?.subscribers ?? -1,
        text: (row) => quantity(row.counts?.subscribers) },
      { key: "lag", title: "Lag", isNumber: true, value: (row) => row.counts?.lag ?? -1, text: lagText },
      { key: "age", title: "Newest event", isNumber: true, isAlways: true, value: (row) => -(row.counts?.newest ?? 0),
        text: (row) => ago(row.counts?.newest) || "none" },
    ];

    // Text.

    function quantity(value, unit = "") {
      if (value === undefined || value === null) return "–";
      let prefix = "";
      for (const [name, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
        if (value < size * 10) continue;
        [prefix, value] = [name, value / size];
        break;
      }
      const digits = Number.isInteger(value) || value >= 100 ? Math.round(value) : value.toFixed(value < 0.1 ? 2 : 1);
      return `${digits}${prefix || /^\w/.test(unit) ? "\u00a0" : ""}${prefix}${unit}`;
    }

    function duration(seconds) {
      seconds = Math.max(0, Math.floor(seconds));
      const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24,
        Math.floor(seconds / 60) % 60];
      if (days > 0) return `${days} d ${hours} h`;
      if (hours > 0) return `${hours} h ${minutes} min`;
      return minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
    }

    // Times are microseconds since the epoch.
    const ago = (time) => time ? duration(Date.now() / 1000 - time / 1e6) + " ago" : "";

    function until(time) {
      if (!time) return "";
      const seconds = time / 1e6 - Date.now() / 1000;
      return seconds < 1 ? "now" : `in ${duration(seconds)}, at ${new Date(time / 1000).toLocaleTimeString()}`;
    }

    function rank(row) {
      const found = ranks.indexOf(isBad(row) ? row.entry.state : isStale(row) ? "stale" : row.entry.state);
      return found < 0 ? ranks.length : found;
    }

    function stateText(row) {
      return (row.entry.state ?? "") + (isStale(row) ? ", stale" : "");
    }

    function lagText(row) {
      const lag = row.counts?.lag;
      return lag === undefined ? "–" : quantity(lag) + (lag === 1 ? " event" : " events");
    }

    // Of the last second, or of the last period of the history.
    const rate = (row, key) => row.rates?.[key] ?? row.recent[key].at(-1);

    // The role of this host for a stream that hosts share.
    function fleet(shared) {
      if (!shared) return "";
      const leader = shared.role === "follower" && shared.leader ? ` of ${shared.leader}` : "";
      const lag = shared.lag > 0 ? `, ${quantity(shared.lag)} behind` : "";
      return `fleet: ${shared.role ?? "shared"}${leader}${lag}`;
    }

    // When a fetch last found that the newest event is still the present one.
    function fresh(counts) {
      return counts?.fresh && counts.fresh >= (counts.newest ?? 0) + 1e6 ? `fresh ${ago(counts.fresh)}` : "";
    }

    function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

    function make(name, className, text) {
      const node = document.createElement(name);
      if (className) node.className = className;
      if (text) node.textContent = text;
      return node;
    }

    function setFacts(list, facts) {
      facts = facts.filter(([, text]) => text);
      while (list.childElementCount > facts.length) list.lastChild.remove();
      facts.forEach(([title, text, isTrouble], index) => {
        const fact = list.children[index] ?? list.appendChild(make("div"));
        if (!fact.firstChild) fact.append(make("dt"), make("dd"));
        setText(fact.firstChild, title);
        setText(fact.lastChild, text);
        fact.lastChild.className = isTrouble ? "bad" : "";
      });
    }

    // Charts: a line over the periods of the history, with its largest value as the scale.

    function makeSVG(name, attributes) {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      return node;
    }

    function makeChart(parent) {
      const svg = makeSVG("svg", { viewBox: "0 0 60 16", preserveAspectRatio: "none", "aria-hidden": "true" });
      svg.append(makeSVG("path", { d: "M0 15.5H60" }), makeSVG("polyline", {}));
      parent.append(svg, make("span", "scale"));
      return parent;
    }

    function drawChart(chart, values, unit) {
      const top = Math.max(...values, 0);
      chart.querySelector("polyline").setAttribute("points", top > 0 ? values.map((value, index) =>
        `${60 - values.length + index + 0.5},${(15 - 14 * value / top).toFixed(1)}`).join(" ") : "");
      setText(chart.querySelector(".scale"), top > 0 ? `max ${quantity(top, unit)}` : "none");
    }

    // The table. Roles are explicit, because narrow windows show rows as blocks.

    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const row = rows.get(entry.target.dataset.name);
        if (!row) continue;
        row.isVisible = entry.isIntersecting;
        if (row.isVisible) drawChart(row.chart, row.recent.events, "/s");
      }
    }, { rootMargin: "200px" });

    function className(column) {
      return (column.isNumber ? "number " : "") + (column.isAlways ? column.key : "wide " + column.key);
    }

    function makeHeader() {
      document.querySelector("#streams table").setAttribute("role", "table");
      document.querySelector("#streams thead").setAttribute("role", "rowgroup");
      byId("rows").setAttribute("role", "rowgroup");
      byId("columns").setAttribute("role", "row");
      for (const column of columns) {
        const cell = make("th", className(column));
        cell.scope = "col";
        cell.setAttribute("role", "columnheader");
        const button = make("button", "", column.title);
        button.type = "button";
        button.addEventListener("click", () => {
          const isSame = order.key === column.key;
          order = { key: column.key, direction: isSame ? -order.direction : column.isNumber ? -1 : 1 };
          showOrder();
          arrange();
        });
        cell.append(button);
        column.header = cell;
        byId("columns").append(cell);
      }
      showOrder();
    }

    function showOrder() {
      for (const column of columns) {
        const isSorted = column.key === order.key;
        column.header.setAttribute(
          "aria-sort", !isSorted ? "none" : order.direction > 0 ? "ascending" : "descending");
        column.header.firstChild.textContent = column.title + (!isSorted ? "" : order.direction > 0 ? " ▲" : " ▼");
      }
    }

    function makeRow(name) {
      const row = { name, entry: {}, counts: null, rates: null, recent: { events: [], bytes: [] }, cells: {} };
      row.node = make("tr");
      row.node.dataset.name = name;
      row.node.setAttribute("role", "row");
      for (const column of columns) {
        const cell = make(column.key === "name" ? "th" : "td", className(column));
        row.node.append(cell);
        if (column.key === "name") {
          cell.scope = "row";
          cell.setAttribute("role", "rowheader");
          row.button = make("button", "", name);
          row.button.type = "button";
          row.button.setAttribute("aria-expanded", "false");
          row.button.setAttribute("aria-controls", "detail");
          row.button.addEventListener("click", () => selected === name ? deselect() : select(name));
          cell.append(row.button);
          continue;
        }
        cell.setAttribute("role", "cell");
        row.cells[column.key] = cell.appendChild(make("span"));
      }
      row.chart = makeChart(row.cells.chart);
      row.fleet = row.cells.source.parentNode.appendChild(make("span", "more"));
      row.fresh = row.cells.age.parentNode.appendChild(make("span", "more"));
      row.message = row.cells.state.parentNode.appendChild(make("span", "more"));
      rows.set(name, row);
      observer.observe(row.node);
      return row;
    }

    function show(row) {
      for (const column of columns) if (column.text) setText(row.cells[column.key], column.text(row));
      row.cells.state.className = isBad(row) || isStale(row) ? "bad" : "";
      setText(row.fleet, fleet(row.entry.fleet));
      setText(row.fresh, fresh(row.counts));
      setText(row.message, row.entry.message ?? "");
    }

    // Moves no row that is at its place, and keeps the focus.
    function arrange() {
      const wanted = byId("filter").value.trim().toLowerCase();
      const column = columns.find((column) => column.key === order.key);
      const list = [...rows.values()].filter((row) =>
        [row.name, stateText(row), row.entry.source, fleet(row.entry.fleet), row.entry.message,
          row.entry.description].some((text) => text?.toLowerCase().includes(wanted)));
      list.sort((one, other) => {
        const [a, b] = [column.value(one), column.value(other)];
        const result = typeof a === "string" ? collator.compare(a, b) : a - b;
        return result * order.direction || collator.compare(one.name, other.name);
      });
      const focused = document.activeElement, body = byId("rows");
      let next = body.firstChild;
      for (const { node } of list) {
        if (node === next) next = next.nextSibling; else body.insertBefore(node, next);
      }
      while (next) {
        const removed = next;
        next = next.nextSibling;
        removed.remove();
      }
      if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
      setText(byId("shown"), list.length === rows.size ? "" : `${list.length} of ${rows.size} streams`);
    }

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
            if (name !== null && answer.status !== 503) {
              refuse(detail);
              continue;
            }
            problem = detail;
            byId("access").open ||= answer.status === 401;
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

    let token = "";
    try { token = sessionStorage.getItem("token") ?? ""; } catch {}

    const authorization = () => token ? { Authorization: `Bearer ${token}` } : {};

    function showToken() {
      byId("forget").hidden = !token;
      setText(byId("token-status"), token ? "In use" : "");
    }

    function setToken(text) {
      token = text;
      try { sessionStorage.setItem("token", token); } catch {}
      byId("token").value = "";
      showToken();
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
    // A reload needs a connection before the page is hidden; if the page stays, it goes on.
    addEventListener("beforeunload", () => { release(); setTimeout(take, 2000); });
    setInterval(() => {
      if (phase === "live" && Date.now() - receivedAt > silentTime) {
        lostAt = new Date();
        restart();
      }
      showPhase();
    }, 1000);
    take();

    """#
}
