"use strict";
const shownEvents = 50, shownCharacters = 4000, shownKeys = 200, mostKeys = 1000, mostCharacters = 4e6;
const silentTime = 10000, meanTime = 5.5e6, shownClients = 200, shownRows = 200, leastGroup = 20;
const byId = (id) => document.getElementById(id);
const rows = new Map();
const groups = new Map();  // the rows of templates, whose streams are shown below them on request
const collator = new Intl.Collator("en", { numeric: true });
const isBad = (row) => ["failing", "failed"].includes(row.entry.state);
const isStale = (row) => row.entry.stale_since !== undefined;
const problems = { failing: isBad, stale: (row) => !isBad(row) && isStale(row) };
const ranks = ["failed", "failing", "stale", "blocked", "waiting"];  // the others follow, by name
let only = null;  // the problem that the table is limited to, by the id of its button
let order = { key: "state", direction: 1 };
let stats = null, period = 5, selected = null;

// Columns: what a row shows, and what it is sorted by. Narrow windows show those that are always there.
const columns = [
  { key: "name", title: "Stream", isAlways: true, value: (row) => row.name },
  { key: "state", title: "State", isAlways: true, value: rank, text: stateText },
  { key: "value", title: "Newest value", value: valueText },
  { key: "source", title: "Source", value: (row) => row.entry.source ?? "", text: (row) => row.entry.source ?? "" },
  { key: "events", title: "Events", isNumber: true, isAlways: true, value: (row) => rate(row, "events") ?? -1,
    text: (row) => quantity(rate(row, "events"), "/s") },
  { key: "chart", title: "Last 5 min", isNumber: true, isAlways: true,
    value: (row) => row.recent.events.reduce((sum, value) => sum + value, 0) },
  { key: "bytes", title: "Data", isNumber: true, value: (row) => rate(row, "bytes") ?? -1,
    text: (row) => quantity(rate(row, "bytes"), "B/s") },
  { key: "subscribers", title: "Subscribers", isNumber: true, value: (row) => row.counts?.subscribers ?? -1,
    text: (row) => quantity(row.counts?.subscribers) },
  { key: "lag", title: "Lag", isNumber: true, value: (row) => row.counts?.lag ?? -1,
    text: (row) => quantity(row.counts?.lag) },
  { key: "age", title: "Age", isNumber: true, isAlways: true, value: (row) => -(row.counts?.newest ?? 0),
    text: (row) => row.counts?.newest ? shortest(age(row.counts.newest)) : "none" },
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
  const both = (count, unit, rest, smaller) => `${count} ${unit}` + (rest > 0 ? ` ${rest} ${smaller}` : "");
  if (days > 0) return both(days, "d", hours, "h");
  if (hours > 0) return both(hours, "h", minutes, "min");
  return minutes > 0 ? both(minutes, "min", seconds % 60, "s") : `${seconds} s`;
}

// One unit.
function shortest(seconds) {
  seconds = Math.max(0, seconds);
  const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, size]) => seconds >= size) ?? ["s", 1];
  return `${Math.floor(seconds / size)}\u00a0${unit}`;
}

// Times are microseconds since the epoch.
const age = (time) => Date.now() / 1000 - time / 1e6;
const ago = (time) => time ? duration(age(time)) + " ago" : "";

// The time of an event, which has a date if that is not today's.
function clock(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return String(text);
  const pad = (number, length = 2) => String(number).padStart(length, "0");
  const hours = `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}.${pad(time.getMilliseconds(), 3)}`;
  if (time.toDateString() === new Date().toDateString()) return hours;
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} ${hours}`;
}

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

// Rates are means of five seconds: the differences of counters whose samples are kept that long, the oldest first.

function keep(past, sample) {
  if (past.length > 0 && past.at(-1).time > sample.time) past.length = 0;  // those of another process
  if (past.at(-1)?.time === sample.time) return;  // repeated by a new response
  past.push(sample);
  while (sample.time - past[0].time > meanTime) past.shift();
}

function mean(past, key) {
  const [first, last] = [past[0], past.at(-1)];
  return past.length > 1 ? Math.max(0, last[key] - first[key]) / (last.time - first.time) * 1e6 : undefined;
}

// Without samples, the rate is that of the last period of the history.
const rate = (row, key) => row.rates ? row.rates[key] : mean(row.past, key) ?? row.recent[key].at(-1);

function valueText(row) {
  const newest = row.newest;
  if (!newest) return "";
  return newest.text === undefined ? quantity(newest.bytes, "B") : newest.text + (newest.cut ? "…" : "");
}

// Why a stream is in its state: in short where the members of its entry say all.
function reason(row) {
  const { state, stale_since, expect_every, fleet, incomplete_since, message } = row.entry;
  const isOnlyStale = isStale(row) && ["running", "idle"].includes(state) && !fleet?.stale_since && !incomplete_since;
  if (!isOnlyStale || !expect_every) return message ?? "";
  const wanted = expect_every < 1e6 ? `${expect_every / 1e3} ms` : duration(expect_every / 1e6);
  return `stale for ${duration(age(stale_since))}, expects one every ${wanted}`;
}

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

// Characters that change the order or the look of others are shown as what they are. Line ends and tabs stay.
const visible = (text) => text.replace(
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
  (character) => character < " " ? String.fromCharCode(0x2400 + character.charCodeAt(0)) : "\ufffd");

// The text as it is: for what is copied.
function setExactText(node, text) { if (node.textContent !== text) node.textContent = text; }

function setText(node, text) { setExactText(node, visible(text)); }

function setTitle(node, text) { if (node.title !== text) node.title = text; }

function make(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text) node.textContent = visible(text);
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
    const row = groups.get(entry.target.dataset.template) ?? rows.get(entry.target.dataset.name);
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
  const row = { name, entry: {}, counts: null, newest: null, past: [], recent: { events: [], bytes: [] } };
  rows.set(name, row);
  return row;
}

// Only rows that are shown have nodes: there may be very many.
function makeNode(row) {
  const { name } = row;
  [row.node, row.cells] = [make("tr", row.list ? "group" : selected === name ? "selected" : ""), {}];
  row.node.dataset[row.list ? "template" : "name"] = name;
  row.node.setAttribute("role", "row");
  for (const column of columns) {
    const cell = make(column.key === "name" ? "th" : "td", className(column));
    row.node.append(cell);
    if (column.key === "name") {
      cell.scope = "row";
      cell.setAttribute("role", "rowheader");
      row.button = make("button", "", name);
      row.button.type = "button";
      row.button.setAttribute("aria-expanded", String(row.list ? row.isOpen : selected === name));
      if (!row.list) row.button.setAttribute("aria-controls", "detail");
      row.button.addEventListener("click", () => row.list ? unfold(row) : selected === name ? deselect() : select(name));
      cell.append(row.button);
      continue;
    }
    cell.setAttribute("role", "cell");
    row.cells[column.key] = cell.appendChild(make("span"));
  }
  row.chart = makeChart(row.cells.chart);
  row.fleet = row.cells.source.parentNode.appendChild(make("span", "more"));
  row.fresh = row.cells.age.parentNode.appendChild(make("span", "more"));
  row.message = row.cells.state.parentNode.appendChild(make("span", "reason"));
  observer.observe(row.node);
  show(row);
  showValue(row);
}

function removeNode(row) {
  if (!row.node) return;
  observer.unobserve(row.node);
  row.node.remove();
  [row.node, row.button, row.isVisible] = [null, null, false];
}

function show(row) {
  if (!row.node) return;
  for (const column of columns) if (column.text) setText(row.cells[column.key], column.text(row));
  row.cells.state.className = isBad(row) || isStale(row) ? "bad" : "";
  setText(row.fleet, fleet(row.entry.fleet));
  setText(row.fresh, fresh(row.counts));
  setText(row.message, reason(row));
  setTitle(row.message, visible(row.entry.message ?? ""));
  row.node.classList.toggle("explained", row.message.textContent !== "");
}

function showValue(row) {
  if (!row.node) return;
  const text = visible(valueText(row));
  setExactText(row.cells.value, text);
  setTitle(row.cells.value, text);
}

function sort(list) {
  const column = columns.find((column) => column.key === order.key);
  return list.sort((one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    const result = typeof a === "string" ? collator.compare(a, b) : a - b;
    return result * order.direction || collator.compare(one.name, other.name);
  });
}

// The row of a template sums up those of its streams, and has the worst of their states.
function sumUp(group) {
  const { list } = group, sum = (value) => list.reduce((total, row) => total + (value(row) ?? 0), 0);
  const most = (value) => list.reduce((most, row) => Math.max(most, value(row) ?? 0), 0);
  const worst = list.reduce((worst, row) => rank(row) < rank(worst) ? row : worst);
  group.entry = { source: worst.entry.source, state: worst.entry.state, stale_since: worst.entry.stale_since,
    message: rank(worst) < ranks.length ? `${worst.name}: ${reason(worst)}` : "" };
  group.counts = { subscribers: sum((row) => row.counts?.subscribers), lag: most((row) => row.counts?.lag),
    newest: most((row) => row.counts?.newest) };
  group.rates = { events: sum((row) => rate(row, "events")), bytes: sum((row) => rate(row, "bytes")) };
  group.recent = { events: [], bytes: [] };
  for (const { recent } of list) {
    recent.events.forEach((value, index) => group.recent.events[index] = (group.recent.events[index] ?? 0) + value);
  }
  if (!group.node) return;
  show(group);
  setText(group.button, `${group.name} (${list.length})`);
  group.button.setAttribute("aria-expanded", String(group.isOpen));
  if (group.isVisible) drawChart(group.chart, group.recent.events, "/s");
}

function unfold(group) {
  group.isOpen = !group.isOpen;
  arrange();
}

// Puts the streams of a template below one row, unless they are few.
function gather(list) {
  const found = new Map();
  for (const row of list) {
    const name = row.entry.template;
    if (name !== undefined && !found.get(name)?.push(row)) found.set(name, [row]);
  }
  for (const [name, group] of groups) {
    if (found.get(name)?.length > leastGroup) continue;
    removeNode(group);
    groups.delete(name);
  }
  for (const [name, members] of found) {
    if (members.length <= leastGroup) continue;
    const group = groups.get(name) ?? { name, newest: null, past: [], isOpen: false };
    groups.set(name, group);
    group.list = members;
    sumUp(group);
  }
  return sort([...list.filter((row) => !groups.has(row.entry.template)), ...groups.values()]).flatMap((row) =>
    row.isOpen ? [row, ...sort(row.list).slice(0, shownRows)] : [row]);
}

// Moves no row that is at its place, and keeps the focus. What the filter finds is shown outside of groups.
function arrange() {
  const wanted = byId("filter").value.trim().toLowerCase(), isFiltered = only !== null || wanted !== "";
  const found = [...rows.values()].filter((row) => (only === null || problems[only](row)) &&
    [row.name, stateText(row), row.entry.source, fleet(row.entry.fleet), row.entry.message,
      row.entry.description].some((text) => text?.toLowerCase().includes(wanted)));
  const list = isFiltered ? sort(found).slice(0, shownRows) : gather(found);
  const focused = document.activeElement, body = byId("rows"), isShown = new Set(list);
  for (const row of [...rows.values(), ...groups.values()]) if (row.node && !isShown.has(row)) removeNode(row);
  let next = body.firstChild;
  for (const row of list) {
    if (!row.node) {
      makeNode(row);
      if (row.list) sumUp(row);
    }
    row.node.classList.toggle("member", !isFiltered && groups.has(row.entry.template) && !row.list);
    if (row.node === next) next = next.nextSibling; else body.insertBefore(row.node, next);
  }
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
  showCount(found.length, list, isFiltered);
}

function showCount(found, list, isFiltered) {
  const cut = isFiltered ? found > shownRows : list.some((row) => row.isOpen && row.list.length > shownRows);
  const all = found === rows.size ? "" : `${found} of ${rows.size} streams`;
  setText(byId("shown"), !cut ? all : `${all || `${rows.size} streams`}; the first ${shownRows} are shown: filter more`);
}
