"""The page, in a headless Chromium. Each check has a fresh daemon."""

import asyncio
import http.server
import json
import os
import pathlib
import re
import shlex
import subprocess
import threading
import urllib.request

import axe_core_python
from browser import Browser, served_on_tcp
from daemon import expect
from environment import reserve_port
from web_checks import curl

AXE = pathlib.Path(axe_core_python.__file__).parent / "axe.min.js"
SHOWN_STREAMS = 11

# What axe-core does not find itself: what a table with rows shown as blocks must keep.
ROLES = """[...document.querySelectorAll("#rows tr")].every((row) => row.getAttribute("role") === "row"
  && [...row.children].every((cell) => ["cell", "rowheader"].includes(cell.getAttribute("role"))))"""
ROW = """rows.get("ticks").node"""
NAMES = """[...document.querySelectorAll("#rows tr")].map((row) => row.dataset.name)"""
STATUS = "document.getElementById('status')?.textContent"
LIVE = f"{STATUS} === 'Live'"
ALL_SHOWN = f"document.querySelectorAll('#rows tr').length === {SHOWN_STREAMS}"


def read(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()


async def publish(daemon, name, *values):
    body = "".join(json.dumps(value) + "\n" for value in values).encode()
    code, answer = await curl(daemon, "--header", "Content-Type: application/x-ndjson", "--data-binary", "@-",
                              f"http://streamd/streams/{name}", data=body)
    expect(code == 0 and json.loads(answer) == {"accepted": len(values)}, f"publishing to {name}: {answer}")


async def set_window(tab, width, height, scheme="light"):
    await tab.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    await tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


async def violations(browser):
    """Returns what axe-core finds in the page as it is."""
    if await browser.evaluate("typeof axe === 'undefined'"):
        await browser.evaluate(AXE.read_text() + "; undefined")
    return await browser.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.map("
        "(each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(' ')}`))")


async def page_is_live(daemon):
    """the page shows all streams, keeps them up to date, and causes no error and no violation of its policy"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await set_window(browser, 1280, 3000)  # with all rows: the lines of others are not drawn
        await browser.send("Page.navigate", url=url + "#ticks")  # which subscribes to it
        await browser.until(LIVE, "the page is live")
        await browser.until(ALL_SHOWN, "all streams are shown")
        await browser.until(f"parseFloat({ROW}.querySelector('.number span').textContent) > 0", "the rate is shown")
        await browser.until(
            f"({ROW}.querySelector('polyline').getAttribute('points') ?? '').split(' ').length > 1", "the line grows")
        scale = await browser.evaluate(f"{ROW}.querySelector('.scale').textContent")
        expect(scale.startswith("max ") and scale.endswith("/s"), f"the scale is {scale}")
        await browser.send("Page.reload")
        await browser.until(
            f"typeof rows !== 'undefined' && rows.has('ticks') && {ROW}.querySelector('polyline').getAttribute('points')?.includes(' ')",
            "the line is there after a reload")
        await browser.until(LIVE, "the page is live")
        facts = await browser.evaluate("document.getElementById('facts').textContent")
        await browser.until(f"document.getElementById('facts').textContent !== {facts!r}", "the uptime changes")
        words = await browser.evaluate(f"[...{ROW}.children].map((cell) => cell.textContent)")
        expect(words[0] == "ticks" and words[1] == "running", f"the row shows {words}")
        await browser.evaluate("select('never')")
        await browser.until(
            "rows.get('never').node.querySelector('.state').textContent.includes('404')", "the failure is in the table")
        await browser.until(
            "/Reason.*404.*Next attemptin .*Attempts.* failed/.test(document.getElementById('detail-facts').textContent)",
            "the panel shows the reason and the next attempt")
        names = await browser.evaluate(NAMES)
        expect(names[0] == "never", f"the failing stream is not the first of {names}")
        facts = await browser.evaluate("document.getElementById('facts').textContent")
        expect(facts.startswith(f"Streams{SHOWN_STREAMS}") and "%" in facts, f"the head shows {facts}")
        problems = await browser.evaluate("document.getElementById('failing').textContent + document.getElementById('stale').textContent")
        expect(problems == "Failing 1Stale 0", f"the head shows {problems}")
        expect(await browser.evaluate("document.title") == "(1) streamd", "the title has no number")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_is_used_by_keyboard(daemon):
    """a stream is selected, closed, filtered and sorted by keyboard; the shown command works"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until(ALL_SHOWN, "all streams are shown")
        for _ in range(40):
            await browser.press("Tab", 9)
            if await browser.evaluate("document.activeElement.textContent") == "ticks":
                break
        await browser.press("Enter", 13, "\r")
        await browser.until("document.activeElement.id === 'detail-name'", "the selected stream has the focus")
        await browser.until("document.querySelectorAll('#events li').length > 3", "its events are shown")
        first = await browser.evaluate("document.querySelector('#events li').textContent")
        await browser.until(f"document.querySelector('#events li').textContent !== {first!r}", "new events are shown")
        command = shlex.split(await browser.evaluate("document.getElementById('command').textContent"))
        expect(command[:2] == ["curl", "-N"], f"the command is {command}")
        shown = await asyncio.to_thread(read, command[2] + "&count=1")
        expect(shown.strip(), "the command shows nothing")
        await browser.press("Escape", 27)
        expect(await browser.evaluate(
            "document.getElementById('detail').hidden && document.activeElement.textContent === 'ticks'"),
            "the row does not get the focus back")
        await browser.evaluate("document.getElementById('filter').focus()")
        await browser.send("Input.insertText", text="TICK")
        await browser.until("document.querySelectorAll('#rows tr').length === 1", "the filter applies")
        await browser.evaluate("document.getElementById('filter').select()")
        await browser.press("Backspace", 8)
        await browser.until(ALL_SHOWN, "the filter is gone")
        await browser.evaluate("document.querySelector('#columns button').focus()")
        await browser.press("Enter", 13, "\r")
        names = await browser.evaluate(NAMES)
        expect(names == sorted(names), f"the order is {names}")
        expect(await browser.evaluate("document.querySelector('#columns th').ariaSort") == "ascending", "aria-sort")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_is_accessible(daemon):
    """axe-core finds nothing, in both colour schemes, at 320 pixels, with a stream selected; 1,000 streams are shown"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url + "#count")
        await browser.until("document.querySelectorAll('#events li').length === 5", "the selected stream is shown")
        colours = set()
        for width, scheme in [(1280, "light"), (1280, "dark"), (320, "light"), (320, "dark")]:
            await set_window(browser, width, 800, scheme)
            found = await violations(browser)
            expect(not found, f"{width} pixels, {scheme}: {found}")
            expect(await browser.evaluate(ROLES), "a cell has no role")
            colours.add(await browser.evaluate("getComputedStyle(document.body).backgroundColor"))
            size = await browser.evaluate("document.documentElement.scrollWidth")
            expect(size <= width, f"the page is {size} pixels wide in a window of {width}")
        expect(len(colours) == 2, f"the backgrounds are {colours}")
        took = await browser.evaluate("""(() => {
          release();
          const began = performance.now();
          receiveStreams(Array.from({ length: 1000 }, (_, index) => ({ name: `s/${index}`, state: "running" })));
          receiveStats({ ...stats, uptime_microseconds: stats.uptime_microseconds + 1e6, by_stream:
            Array.from({ length: 1000 }, (_, index) => ({ name: `s/${index}`, events_in: index, bytes_in: 0 })) });
          document.body.getBoundingClientRect();
          return [rows.size, performance.now() - began];
        })()""")
        expect(took[0] == 1000 and took[1] < 10_000, f"1,000 streams: {took}")


async def page_gathers_the_streams_of_a_template(daemon):
    """many streams of one template have one row, which shows their sum, and some of them on request; a filter finds each"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until(LIVE, "the page is live")
        shown = await browser.evaluate("""(() => {
          release();
          take = () => {};
          const names = Array.from({ length: 10000 }, (_, index) => `s/${index}`);
          receiveStreams([{ name: "ticks", state: "running", source: "timer" }, ...names.map((name) => (
            { name, state: name === "s/77" ? "failing" : "running", source: "http", template: "s/{n}", message: "why" }))]);
          receiveStats({ ...stats, uptime_microseconds: stats.uptime_microseconds + 1e6, by_stream: names.map((name) => (
            { name, events_in: 1, bytes_in: 0, subscribers: 2, state: name === "s/77" ? "failing" : "running" })) });
          const texts = () => [...document.querySelectorAll("#rows tr")].map((row) => row.firstChild.textContent);
          const folded = texts(), group = document.querySelector("#rows tr.group");
          const sums = [group.querySelector(".state").textContent, group.querySelector(".subscribers").textContent];
          group.querySelector("button").click();
          const [unfolded, count] = [texts(), byId("shown").textContent];
          byId("filter").value = "s/9876";
          arrange();
          const found = texts();
          byId("filter").value = "";
          arrange();
          select("s/9999");
          receiveStreams([{ name: "ticks", state: "running", source: "timer" }]);
          return [folded, sums, unfolded.length, unfolded.slice(1, 2), count, found, texts(), selected];
        })()""")
        folded, sums, number, first, count, found, last, selected = shown
        expect(folded == ["s/{n} (10000)", "ticks"], f"the rows are {folded}")
        expect(sums == ["failings/77: why", "20\u00a0k"], f"the sums are {sums}")
        expect(number == 202 and first == ["s/77"], f"{number} rows are shown, the first is {first}")
        expect(count == "10001 streams; the first 200 are shown: filter more", f"the count is {count}")
        expect(found == ["s/9876"], f"the filter finds {found}")
        expect(last == ["ticks"] and selected is None, f"without the template there are {last}")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_shows_foreign_text_as_text(daemon):
    """names, reasons, hosts of a fleet, keys and events are text in the page and in its commands, whatever they are"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until(LIVE, "the page is live")
        await browser.evaluate("release(); rows.size")
        texts = await browser.evaluate("""(() => {
          receiveStreams([
            { name: "alone", state: "running", source: "http" },
            { name: "lead", state: "running", source: "http", fleet: { role: "leader", leader: "n1", lag: 0 } },
            { name: "stale", state: "running", stale_since: 1, source: "http", message: "stale since <i>2026",
              fleet: { role: "follower", leader: "<b>n2", lag: 3 } }]);
          return [...document.querySelectorAll("#rows tr")].map((row) =>
            row.querySelector(".state").textContent + "|" + row.querySelector(".source").textContent);
        })()""")
        wanted = ["running, stalestale since <i>2026|httpfleet: follower of <b>n2, 3 behind", "running|http",
                  "running|httpfleet: leader"]
        expect(texts == wanted, f"the rows are {texts}")
        for width, scheme in [(1280, "light"), (1280, "dark"), (320, "light"), (320, "dark")]:
            await set_window(browser, width, 800, scheme)
            found = await violations(browser)
            expect(not found, f"{width} pixels, {scheme}: {found}")
        hostile = """<img src=x onerror=console.error(1)>'"$(id)`id`\\u0000</script>__proto__"""
        shown = await browser.evaluate(f"""((text) => {{
          take = () => {{}};
          receiveStreams([{{ name: text, state: text, source: text, message: text, description: text, type: text,
            keys: 1, key: "/__proto__/" + text.replaceAll("~", "~0").replaceAll("/", "~1") }}]);
          select(text);
          const data = JSON.parse('{{"__proto__":{{}}}}');
          data["__proto__"][text] = text;
          Object.defineProperty(data, "__proto__", {{ value: {{ [text]: text }}, enumerable: true }});
          showEvents([JSON.stringify({{ stream: text, id: 1, time: text, data }}), "{{", "null", "[]", '{{"id":{{}}}}']);
          return [document.querySelectorAll("img, i, b").length, document.getElementById("key-rows").textContent,
            document.getElementById("local-command").textContent, document.getElementById("command").textContent];
        }})({json.dumps(hostile)})""")
        expect(shown[0] == 0, "text has become markup")
        expect(hostile in shown[1], f"the keys are {shown[1]}")
        expect(shlex.split(shown[2]) == ["streamctl", "sub", hostile, "--from", "state"], f"the command is {shown[2]}")
        expect(len(shlex.split(shown[3])) == 3, f"the command is {shown[3]}")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_shows_keys(daemon):
    """the state of a stream with keys is a table that follows changes and removals; the command shows the same"""
    keys = "[...document.querySelectorAll('#key-rows tr')].map((row) => row.children[0].textContent + row.children[1].textContent)"
    await publish(daemon, "quotes", {"symbol": "IBM", "price": 1}, {"symbol": "AAPL", "price": 2}, {"symbol": 7})
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url + "#quotes")
        await browser.until(f"{keys}.length === 3", "the keys are shown")
        shown = await browser.evaluate(keys)
        wanted = ['7{"symbol":7}', 'AAPL{"symbol":"AAPL","price":2}', 'IBM{"symbol":"IBM","price":1}']
        expect([row.replace(" ", "") for row in shown] == wanted, f"the keys are {shown}")
        command = shlex.split(await browser.evaluate("document.getElementById('command').textContent"))
        lines = (await asyncio.to_thread(read, command[2] + "&follow=0")).splitlines()
        expect({json.loads(line)["data"]["symbol"] for line in lines} == {7, "AAPL", "IBM"}, f"the command shows {lines}")
        await publish(daemon, "quotes", {"symbol": "IBM", "price": 3}, {"symbol": 7, "delisted": True})
        await browser.until(f"{keys}.length === 2 && {keys}[1].includes('3')", "a key changes, and one goes")
        found = await violations(browser)
        expect(not found, f"{found}")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_has_hints(daemon):
    """without a stream the page says what to write; on a phone each stream is two lines"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await set_window(browser, 360, 740)
        await browser.send("Page.navigate", url=url)
        await browser.until(ALL_SHOWN + " && " + LIVE, "all streams are shown")
        heights = await browser.evaluate("[...document.querySelectorAll('#rows tr')].map((row) => row.offsetHeight)")
        lines = await browser.evaluate("""[...document.querySelectorAll("#rows tr")].map((row) =>
          new Set([...row.children].filter((cell) => cell.offsetHeight > 0).map((cell) =>
            cell.getBoundingClientRect().top < row.getBoundingClientRect().top + row.offsetHeight / 2 - 8)).size)""")
        expect(max(heights) < 80 and set(lines) == {2}, f"the rows have {heights} pixels and {lines} lines")
        await browser.evaluate("release(); receiveStreams([])")
        expect("timer.every" in await browser.evaluate("document.getElementById('hint').innerText"), "there is no hint")
        expect(await browser.evaluate("document.getElementById('streams').hidden"), "there is an empty table")
        for scheme in ["light", "dark"]:
            await set_window(browser, 360, 740, scheme)
            found = await violations(browser)
            expect(not found, f"{scheme}: {found}")


async def pages_share_a_browser(daemon):
    """six windows are live, each with a stream, and stay so over reloads and other streams"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        tabs = [browser] + [await browser.open(in_new_window=True) for _ in range(5)]
        names = ["ticks", "brief", "ticks", "never", "notes", "ticks"]

        async def all_are_live():
            for number, tab in enumerate(tabs):
                expect(await tab.evaluate("document.visibilityState") == "visible", f"window {number} is hidden")
                await tab.until(f"{LIVE} && selected === {names[number]!r}", f"window {number} is live")
            before = [await tab.evaluate("stats.uptime_microseconds") for tab in tabs]
            for number, tab in enumerate(tabs):
                await tab.until(f"{LIVE} && stats?.uptime_microseconds > {before[number]}", f"window {number} goes on")

        for tab, name in zip(tabs, names):
            await tab.send("Page.navigate", url=f"{url}#{name}")
            await tab.until(LIVE, "a window is live")
        await all_are_live()
        for number in (0, 5):
            await tabs[number].send("Page.reload")
            await tabs[number].until(f"typeof selected !== 'undefined' && {LIVE}", "a reloaded window is live")
        await tabs[3].evaluate("select('brief')")
        names[3] = "brief"
        await all_are_live()
        expect(not browser.errors, f"errors: {browser.errors}")


async def pages_release_what_they_do_not_show(daemon):
    """of ten tabs the visible one is live, and the others hold no connection; one that is shown again is live"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        tabs = [browser] + [await browser.open() for _ in range(9)]
        for tab in tabs:
            await tab.show()
            await tab.send("Page.navigate", url=f"{url}#ticks")
            await tab.until(LIVE, "a tab is live")
        for tab in tabs[:-1]:
            expect(await tab.evaluate(f"document.hidden && response === null && {STATUS}") == "Paused while hidden",
                   "a hidden tab is not paused")
            expect(await tab.evaluate("document.title") == "streamd (paused)", "its title does not say so")
        await tabs[-1].until("stats?.connections === 1", "one connection is left")
        for tab in [tabs[2], tabs[7], tabs[2], tabs[0], tabs[2]]:
            await tab.show()
            await tab.until(f"{LIVE} && document.querySelectorAll('#events li').length > 3", "a tab that is back is live")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_comes_back(daemon):
    """a tab that leaves the page and comes back three times is live each time, at the first attempt"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=f"{url}#ticks")
        await browser.until(LIVE, "the page is live")
        kept = 0
        for _ in range(3):
            await browser.evaluate("window.isKept = true; setPhase = ((set) => (next) => {"
                                   "if (next === 'lost') console.error('lost'); set(next); })(setPhase)")
            await browser.send("Page.navigate", url="about:blank")
            await browser.until("location.href === 'about:blank'", "another page is shown")
            await browser.evaluate("setTimeout(() => history.back()); 1")
            await browser.until(f"location.pathname === '/' && {LIVE} && stats !== null", "the page is live again")
            kept += await browser.evaluate("window.isKept === true")
        expect(not browser.errors, f"errors: {browser.errors}")
        return kept


async def page_says_why_it_waits(daemon):
    """a page that gets no connection says so, and is live once it gets one; a stream that is refused is no obstacle"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until(LIVE, "the page is live")
        await browser.evaluate("""release();
          var held = Array.from({ length: 6 }, () => new AbortController());
          var begun = 0;
          for (const { signal } of held) {
            fetch("/streams/notes?as=ndjson&ids=1", { signal, cache: "no-store" }).then(() => begun += 1).catch(() => {});
          }""")
        await browser.until("begun === 6", "the connections are taken")
        await browser.evaluate("take()")
        await browser.until(f"{STATUS} === 'Waiting for a connection'", "the page waits")
        expect(await browser.evaluate("getComputedStyle(document.getElementById('status')).color !== "
                                      "getComputedStyle(document.body).getPropertyValue('--good')"), "it looks live")
        await browser.evaluate("held[0].abort()")
        await browser.until(LIVE, "it is live once there is a connection")
        await browser.evaluate("rows.get('quotes').entry.keys = 1, rows.get('notes').entry.key = '/x',"
                               "rows.get('notes').entry.keys = 1, select('notes')")
        await browser.until("document.getElementById('events-status').textContent.includes('has no keys')", "a reason")
        await browser.until(LIVE, "the others stay live")


class Document(http.server.BaseHTTPRequestHandler):
    """The web page of docs/START.md."""

    text = ""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_):
        pass


async def page_of_another_origin_reads(daemon):
    """the web page in START.md reads a stream"""
    start = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "START.md").read_text()
    text = re.search(r"^```html\n(.*?)^```$", start, re.M | re.S)[1]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Document) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://localhost:{server.server_address[1]}"
        daemon.stop()
        daemon.start('[streams.clock]\ntimer.every = "1s"\n', server=f'origins = ["{origin}"]')
        async with served_on_tcp(daemon) as url, Browser() as browser:
            Document.text = text.replace("http://localhost:8080/", url)
            await browser.send("Page.navigate", url=origin)
            await browser.until("document.getElementById('time')?.textContent.startsWith('20')", "the time is shown")
        server.shutdown()


async def browser_reads_with_tickets(daemon):
    """an EventSource as in START.md goes on after a restart with another ticket, and so does a WebSocket, which also publishes"""
    start = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "START.md").read_text()
    code = re.search(r"^```js\n(.*?)^```$", start, re.M | re.S)[1]
    address, token = f"127.0.0.1:{reserve_port()}", "T0ken-of-the-office"

    def serve():
        daemon.start(
            '[streams.ticks]\nread = ["user:root"]\ntimer.every = "100ms"\n[streams.notes]\npublish = true\nread = ["user:root"]\n'
            '[[tokens]]\nname = "office"\ncredential = "office"\nread = ["*"]\nwrite = ["notes"]\n',
            server=f'listen = ["{address}"]', credentials={"office": token})

    daemon.stop()
    serve()
    async with Browser() as browser:
        await browser.send("Page.navigate", url=f"http://{address}/")
        await browser.until("document.readyState === 'complete'", "the page is there")
        await browser.evaluate(f"""{code}
            window.seen = [];
            listen("http://{address}/streams/ticks", "{token}", (data) => seen.push(JSON.parse(data).tick)); undefined""")
        await browser.until("seen.length > 3", "events come")
        daemon.stop()
        serve()
        await browser.evaluate("window.before = seen.length; undefined")
        await browser.until("seen.length > before + 3", "events come after a restart")
        await browser.evaluate(f"""
            window.said = [];
            const open = async (target) => {{
              const answer = await fetch("/tickets", {{ method: "POST", headers: {{ Authorization: "Bearer {token}" }} }});
              const socket = new WebSocket("ws://{address}/streams/" + target + "ticket=" + (await answer.json()).ticket);
              socket.onmessage = ({{ data }}) => said.push(data);
              socket.onclose = ({{ code }}) => said.push(code);
              await new Promise((done) => {{ socket.onopen = done; }});
              return socket;
            }};
            (async () => {{
              await open("notes?");
              (await open("notes?publish=1&")).send("from a browser");
            }})()""")
        await browser.until(
            "said.includes('from a browser') && said.includes('{\"accepted\":1}')", "the value is published and read")
        daemon.stop()
        await browser.until("said.filter((each) => each === 1001).length === 2", "both are closed")
    daemon.start()


async def page_uses_a_token(daemon):
    """the page shows what a token may read, also after a reload; a wrong one is refused by name, and can be replaced"""
    address = f"127.0.0.1:{reserve_port()}"
    daemon.stop()
    daemon.start(
        '[streams.open]\nread = ["*"]\ntimer.every = "1s"\n[streams.secret]\nread = ["user:root"]\ntimer.every = "1s"\n'
        '[[tokens]]\nname = "office"\ncredential = "office"\nread = ["*"]\n',
        server=f'listen = ["{address}"]', credentials={"office": "T0ken-of-the-office"})

    async def use(browser, token):
        await browser.evaluate("document.getElementById('access').open = true, document.getElementById('token').focus()")
        await browser.send("Input.insertText", text=token)
        await browser.press("Enter", 13, "\r")

    async with Browser() as browser:
        await browser.send("Page.navigate", url=f"http://{address}/")
        await browser.until(f"{LIVE} && String({NAMES}) === 'open'", "what all may read is shown")
        await use(browser, "nobody-has-this-token")
        await browser.until(f"{STATUS} === 'Refused: the token is not valid'", "the reason is shown")
        await use(browser, "T0ken-of-the-office")
        await browser.until(f"{LIVE} && String({NAMES}) === 'open,secret'", "what the token may read is shown")
        await browser.evaluate("window.isFormer = true")
        await browser.send("Page.reload")
        await browser.until(f"!window.isFormer && {LIVE} && String({NAMES}) === 'open,secret'", "the token is kept")
        await browser.evaluate("select('secret')")
        await browser.until("document.querySelectorAll('#events li').length > 1", "its events are shown")
        command = await browser.evaluate("document.getElementById('command').textContent")
        shown = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", command.removesuffix("'") + "&count=1'"], capture_output=True, timeout=30,
            env={**os.environ, "TOKEN": "T0ken-of-the-office"})
        expect(b'"tick"' in shown.stdout, f"the command shows {shown}")
        found = await violations(browser)
        expect(not found, f"axe-core: {found}")
        await browser.evaluate("document.getElementById('forget').click()")
        await browser.until(f"{LIVE} && String({NAMES}) === 'open'", "the token is forgotten")


async def page_recovers(daemon):
    """the page shows that it is disconnected, and recovers by itself"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until(LIVE, "the page is live")
        daemon.stop()
        await browser.until(
            "document.getElementById('status').textContent.startsWith('Disconnected since')", "it is disconnected")
        daemon.start()
        await browser.until(LIVE, "the page is live again")


CHECKS = [
    page_is_live, page_is_used_by_keyboard, page_is_accessible, page_gathers_the_streams_of_a_template,
    page_shows_foreign_text_as_text, page_shows_keys,
    page_has_hints, pages_share_a_browser, pages_release_what_they_do_not_show, page_comes_back, page_says_why_it_waits,
    page_of_another_origin_reads, browser_reads_with_tickets, page_uses_a_token, page_recovers,
]
