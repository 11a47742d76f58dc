extension Page {
  /// The script. Whatever comes from the server is set as text.
  static let script = #"""

    "use strict";
    const samples = 60, shownEvents = 50, shownCharacters = 4000, silentTime = 10000;
    const byId = (id) => document.getElementById(id);
    const rows = new Map();
    const collator = new Intl.Collator("en", { numeric: true });
    let order = { key: "name", direction: 1 };
    let stats = null, selected = null, following = null;

    // Columns: what a row shows, and what it is sorted by.
    const columns = [
      { key: "name", title: "Stream", value: (row) => row.name },
      { key: "state", title: "State", value: (row) => row.entry.state ?? "", text: (row) => row.entry.state ?? "" },
      { key: "source", title: "Source", value: (row) => row.entry.source ?? "", text: (row) => row.entry.source ?? "" },
      { key: "events", title: "Events/s", isNumber: true, value: (row) => row.events.at(-1) ?? -1,
        text: (row) => rate(row.events), line: (row) => row.events },
      { key: "bytes", title: "Bytes/s", isNumber: true, value: (row) => row.bytes.at(-1) ?? -1,
        text: (row) => rate(row.bytes), line: (row) => row.bytes },
      { key: "subscribers", title: "Subscribers", isNumber: true, value: (row) => row.counts?.subscribers ?? -1,
        text: (row) => number(row.counts?.subscribers) },
      { key: "lag", title: "Lag", isNumber: true, value: (row) => row.counts?.lag ?? -1,
        text: (row) => number(row.counts?.lag) },
      { key: "age", title: "Newest event", isNumber: true, value: (row) => -(row.counts?.newest ?? 0),
        text: (row) => row.counts?.newest ? duration(Date.now() / 1000 - row.counts.newest / 1e6) + " ago" : "none" },
    ];

    // Text.

    function number(value) {
      if (value === undefined || value === null) return "–";
      if (value < 10 && !Number.isInteger(value)) return value.toFixed(1);
      for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
        if (value >= size * 10) return (value / size).toFixed(value >= size * 100 ? 0 : 1) + " " + unit;
      }
      return String(Math.round(value));
    }

    const rate = (values) => number(values.at(-1));

    function duration(seconds) {
      seconds = Math.max(0, Math.floor(seconds));
      const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24,
        Math.floor(seconds / 60) % 60];
      if (days > 0) return `${days} d ${hours} h`;
      if (hours > 0) return `${hours} h ${minutes} min`;
      return minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
    }

    // The role of this host for a stream that hosts share.
    function fleet(shared) {
      if (!shared) return "";
      const leader = shared.role === "follower" && shared.leader ? ` of ${shared.leader}` : "";
      const lag = shared.lag > 0 ? `, ${number(shared.lag)} behind` : "";
      return `fleet: ${shared.role ?? "shared"}${leader}${lag}`;
    }

    // When a fetch last found that the newest event is still the present one.
    function fresh(counts) {
      if (!counts?.fresh || counts.fresh < (counts.newest ?? 0) + 1e6) return "";
      return `fresh ${duration(Date.now() / 1000 - counts.fresh / 1e6)} ago`;
    }

    function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

    function make(name, className, text) {
      const node = document.createElement(name);
      if (className) node.className = className;
      if (text) node.textContent = text;
      return node;
    }

    function makeSVG(name, attributes) {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      return node;
    }

    // The table. Roles are explicit, because narrow windows show rows as blocks.

    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const row = rows.get(entry.target.dataset.name);
        if (!row) continue;
        row.isVisible = entry.isIntersecting;
        if (row.isVisible) drawLines(row);
      }
    }, { rootMargin: "200px" });

    function makeHeader() {
      document.querySelector("table").setAttribute("role", "table");
      document.querySelector("thead").setAttribute("role", "rowgroup");
      byId("rows").setAttribute("role", "rowgroup");
      byId("columns").setAttribute("role", "row");
      for (const column of columns) {
        const cell = make("th");
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
      const row = { name, entry: {}, counts: null, events: [], bytes: [], cells: {}, lines: {}, isVisible: false };
      row.node = make("tr");
      row.node.dataset.name = name;
      row.node.setAttribute("role", "row");
      for (const column of columns) {
        const cell = make(column.key === "name" ? "th" : "td", column.isNumber ? "number" : "");
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
        cell.dataset.column = column.title;
        cell.setAttribute("role", "cell");
        row.cells[column.key] = cell.appendChild(make("span"));
        if (column.line) {
          const svg = makeSVG("svg", { viewBox: "0 0 60 16", preserveAspectRatio: "none", "aria-hidden": "true" });
          row.lines[column.key] = svg.appendChild(makeSVG("polyline", {}));
          cell.append(svg);
        }
      }
      row.fleet = row.cells.source.parentNode.appendChild(make("span", "fleet"));
      row.fresh = row.cells.age.parentNode.appendChild(make("span", "fleet"));
      row.message = row.cells.source.parentNode.appendChild(make("span", "message"));
      rows.set(name, row);
      observer.observe(row.node);
      return row;
    }

    function show(row) {
      for (const column of columns) if (column.text) setText(row.cells[column.key], column.text(row));
      row.cells.state.parentNode.className = ["failing", "failed"].includes(row.entry.state) || row.entry.stale_since ? "bad" : "";
      setText(row.fleet, fleet(row.entry.fleet));
      setText(row.fresh, fresh(row.counts));
      setText(row.message, row.entry.message ?? "");
      if (row.isVisible) drawLines(row);
    }

    function drawLines(row) {
      for (const column of columns) {
        if (!column.line) continue;
        const values = column.line(row), top = Math.max(...values, 1e-9);
        row.lines[column.key].setAttribute("points", values.map((value, index) =>
          `${samples - values.length + index},${(15 - 14 * value / top).toFixed(1)}`).join(" "));
      }
    }

    // Moves no row that is at its place, and keeps the focus.
    function arrange() {
      const wanted = byId("filter").value.trim().toLowerCase();
      const column = columns.find((column) => column.key === order.key);
      const list = [...rows.values()].filter((row) =>
        [row.name, row.entry.state, row.entry.source, fleet(row.entry.fleet), row.entry.message,
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
      setText(byId("shown"), list.length === rows.size ? `${rows.size} streams` : `${list.length} of ${rows.size} streams`);
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
        row.entry = entry;
        show(row);
      }
      arrange();
      if (selected) describe(rows.get(selected));
      else selectFromAddress();
    }

    function receiveStats(next) {
      const elapsed = stats ? (next.uptime_microseconds - stats.uptime_microseconds) / 1e6 : 0;
      setText(byId("version"), next.version);
      setText(byId("uptime"), duration(next.uptime_seconds));
      byId("connections").parentNode.hidden = next.connections === undefined;
      setText(byId("connections"), number(next.connections));
      byId("load").parentNode.hidden = next.busy_microseconds === undefined;
      if (elapsed > 0 && next.busy_microseconds && stats.busy_microseconds) {
        setText(byId("load"), next.busy_microseconds.map((busy, index) =>
          Math.round(Math.max(0, busy - stats.busy_microseconds[index]) / elapsed / 1e4) + " %").join(", "));
      }
      for (const counts of next.by_stream) {
        const row = rows.get(counts.name);
        if (!row) continue;
        if (elapsed < 0) [row.counts, row.events, row.bytes] = [null, [], []];
        if (row.counts && elapsed > 0) {
          for (const [values, key] of [[row.events, "events_in"], [row.bytes, "bytes_in"]]) {
            values.push(Math.max(0, counts[key] - row.counts[key]) / elapsed);
            if (values.length > samples) values.shift();
          }
        }
        row.counts = counts;
        row.entry.state = counts.state ?? row.entry.state;
        show(row);
      }
      stats = next;
      if (!["name", "source"].includes(order.key)) arrange();
    }

    // The connection. It is made anew each time, rather than continued, so that it begins with the present state.

    let source = null, lostAt = null, receivedAt = 0, delay = 1000;

    function connect() {
      source = new EventSource("/streams/$streams,$stats?as=sse&from=latest");
      receivedAt = Date.now();
      const receive = (name, handle) => source.addEventListener(name, (event) => {
        receivedAt = Date.now();
        if (lostAt !== null || !byId("status").dataset.live) {
          setText(byId("status"), "Live");
          [byId("status").className, byId("status").dataset.live, lostAt, delay] = ["", "true", null, 1000];
          document.querySelector("table").className = "";
          document.title = "streamd";
        }
        handle(JSON.parse(event.data));
      });
      receive("$streams", receiveStreams);
      receive("$stats", receiveStats);
      source.addEventListener("end", disconnect);
      source.addEventListener("error", disconnect);
    }

    function disconnect() {
      if (!source) return;
      source.close();
      source = null;
      lostAt ??= new Date();
      byId("status").className = "lost";
      setText(byId("status"), `Disconnected since ${lostAt.toLocaleTimeString()}; reconnecting`);
      document.querySelector("table").className = "stale";
      document.title = "streamd (disconnected)";
      setTimeout(connect, delay);
      delay = Math.min(delay * 2, 10000);
    }

    // One stream and its newest events.

    const address = (name, query) => "/streams/" + name.split("/").map(encodeURIComponent).join("/")
      .replaceAll("'", "%27") + "?" + query;

    function describe(row) {
      const isJSON = /^application\/([^;]*\+)?json\b/.test(row.entry.type ?? "");
      setText(byId("description"), [row.entry.description, row.entry.type, row.entry.source].filter(Boolean).join(" · "));
      setText(byId("command"),
        `curl -N '${location.origin}${address(row.name, isJSON ? "as=ndjson" : "as=ndjson&ids=1")}'`);
    }

    function select(name) {
      deselect();
      selected = name;
      const row = rows.get(name);
      row.node.className = "selected";
      row.button.setAttribute("aria-expanded", "true");
      setText(byId("detail-name"), name);
      describe(row);
      byId("events").replaceChildren();
      byId("detail").hidden = false;
      byId("detail-name").focus();
      history.replaceState(null, "", "#" + encodeURIComponent(name));
      following = new AbortController();
      follow(row, following.signal);
    }

    function deselect() {
      const row = rows.get(selected);
      following?.abort();
      selected = following = null;
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
      if (rows.has(name)) select(name);
    }

    const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

    // Reads as fast as events come, since a slow reader delays a stream that drops nothing; shows the newest ones.
    async function follow(row, signal) {
      const say = (text) => { if (!signal.aborted) setText(byId("events-status"), text); };
      let lines = [];
      const timer = setInterval(() => {
        if (lines.length > 0) showEvents(lines);
        lines = [];
      }, 250);
      signal.addEventListener("abort", () => clearInterval(timer));
      while (!signal.aborted) {
        try {
          say("Waiting for events");
          const last = row.entry.last_id;
          const from = last > 20 ? last - 20 : "replay";
          const response = await fetch(
            address(row.name, `as=ndjson&ids=1&on_lag=latest&from=${from}`), { signal, cache: "no-store" });
          if (!response.ok) {
            const problem = await response.json();
            say(problem.detail ?? response.statusText);
            if (response.status < 500) return;
          } else {
            const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
            let rest = "";
            for (;;) {
              const { value, done } = await reader.read();
              if (done) break;
              const parts = (rest + value).split("\n");
              rest = parts.pop();
              if (parts.length === 0) continue;
              say("Live");
              lines = lines.concat(parts.slice(-shownEvents)).slice(-shownEvents);
            }
            say("The stream has ended");
            if (["finished", "failed"].includes(row.entry.state)) return;
          }
        } catch {
          say("Disconnected; reconnecting");
        }
        await pause(2000);
      }
    }

    function showEvents(lines) {
      const list = byId("events");
      for (const line of lines) {
        let event, text;
        try {
          event = JSON.parse(line);
          const raw = line.slice(line.indexOf('"data":') + 7, -1);  // as it is: numbers keep their digits
          text = event.data_base64 !== undefined ? `base64: ${event.data_base64}`
            : typeof event.data === "string" ? event.data : raw;
        } catch {
          continue;
        }
        if (text.length > shownCharacters) text = text.slice(0, shownCharacters) + `… (${text.length} characters)`;
        const item = make("li");
        item.append(make("span", "", `${event.id} · ${event.time}`), make("pre", "", text));
        list.prepend(item);
      }
      while (list.childElementCount > shownEvents) list.lastChild.remove();
    }

    makeHeader();
    byId("filter").addEventListener("input", arrange);
    byId("close").addEventListener("click", deselect);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && selected) deselect(); });
    addEventListener("hashchange", selectFromAddress);
    setInterval(() => { if (source && Date.now() - receivedAt > silentTime) disconnect(); }, 1000);
    connect();

    """#
}
