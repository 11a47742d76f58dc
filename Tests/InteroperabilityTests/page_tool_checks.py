"""The page as a tool: newest values, problems, clients, and what a stream's panel does. Each check has a fresh daemon."""

import asyncio
import contextlib

from browser import Browser, served_on_tcp
from daemon import expect
from environment import reserve_port
from page_checks import ALL_SHOWN, LIVE, NAMES, publish, set_window, violations
from web_checks import curl

TROUBLES = """(() => {
  release();
  receiveStreams(Array.from({ length: 200 }, (_, index) => ({ name: `s/${String(index).padStart(3, "0")}`, source: "http",
    state: index % 20 === 7 && index < 100 ? "failing" : "running", type: "application/json",
    ...(index % 20 === 7 && index < 100 && { message: "HTTP 503 Service Unavailable; " + "and so on ".repeat(40) }),
    ...(index % 20 === 7 && index >= 100 && { stale_since: Date.now() * 1000 - 11.2e6, expect_every: 3e6,
      message: "stale since 2026-01-01T00:00:00Z: nothing has come for longer than expect_every, 3 s" }) })));
  const lines = (row) => row.querySelector(".reason").getClientRects().length === 1 && row.querySelector(".reason").offsetHeight;
  return [...document.querySelectorAll("#rows tr")].slice(0, 11).map((row) => ({ name: row.dataset.name,
    bottom: row.getBoundingClientRect().bottom, reason: row.querySelector(".reason").textContent,
    title: row.querySelector(".reason").title, height: lines(row) }));
})()"""
VALUE = "rows.get({!r})?.cells.value.textContent"


@contextlib.asynccontextmanager
async def shown(daemon, fragment="", url=None):
    """A browser that shows the daemon's page, which is live; fails if the page has caused an error."""
    async with contextlib.AsyncExitStack() as stack:
        url = url or await stack.enter_async_context(served_on_tcp(daemon))
        browser = await stack.enter_async_context(Browser())
        await browser.send("Page.navigate", url=url + fragment)
        await browser.until(LIVE, "the page is live")
        yield browser
        expect(not browser.errors, f"errors: {browser.errors}")


async def press(browser, identifier):
    await browser.evaluate(f"document.getElementById({identifier!r}).focus()")
    await browser.press("Enter", 13, "\r")


async def is_accessible(browser):
    for width, scheme in [(1280, "light"), (320, "dark")]:
        await set_window(browser, width, 800, scheme)
        found = await violations(browser)
        expect(not found, f"{width} pixels, {scheme}: {found}")
        size = await browser.evaluate("document.documentElement.scrollWidth")
        expect(size <= width, f"the page is {size} pixels wide in a window of {width}")


async def page_shows_newest_values(daemon):
    """the page has how newest events begin, in few bytes, and causes no source to be asked"""
    large = "x" * (1 << 20)
    await publish(daemon, "notes", large)
    await publish(daemon, "quotes", {"symbol": "IBM\u202e\u0007<b>", "price": 1})
    async with shown(daemon) as browser:
        await browser.until(f"{VALUE.format('notes')} === '\"' + 'x'.repeat(59) + '…'", "the beginning of a large event is shown")
        value = await browser.evaluate(VALUE.format("quotes"))
        expect("IBM" in value and "<b>" in value and not set(value) & {"\u202e", "\u0007"}, f"the value is {value!r}")
        await publish(daemon, "quotes", {"symbol": "IBM", "price": 2})
        await browser.until(f"{VALUE.format('quotes')}.includes('2')", "a new value is shown")
        states = await browser.evaluate("['page', 'never', 'ticks'].map((name) => rows.get(name).entry.state)")
        expect(states == ["idle"] * 3, f"the sources are {states}")
        counts = await browser.evaluate("rows.get('never').counts.upstream ?? null")
        expect(counts is None, f"the upstream was asked: {counts}")
        _, answer = await curl(daemon, "http://streamd/streams/%24newest")
        expect(len(answer) < 2000, f"$newest has {len(answer)} bytes")


async def page_shows_problems_at_once(daemon):
    """ten problems of 200 streams are seen without scrolling, each with its reason on one line; the head limits the table to them"""
    async with shown(daemon) as browser:
        await set_window(browser, 1280, 800)
        found = await browser.evaluate(TROUBLES)
        expect([row["name"] for row in found[:10]] == [f"s/{20 * index + 7:03}" for index in range(10)], f"first are {found}")
        expect(found[9]["bottom"] < 800, f"the rows end at {[row['bottom'] for row in found]}")
        expect(all(0 < row["height"] < 30 for row in found[:10]), f"the reasons are {found}")
        expect(found[0]["title"].endswith("and so on ") and found[5]["reason"] == "stale for 11 s, expects one every 3 s"
               and "expect_every" in found[5]["title"], f"the reasons are {found[0]}, {found[5]}")
        for identifier, names in [("failing", range(7, 100, 20)), ("stale", range(107, 200, 20))]:
            await press(browser, identifier)
            shown_names = await browser.evaluate(NAMES)
            expect(shown_names == [f"s/{index:03}" for index in names], f"{identifier}: {shown_names}")
        expect(await browser.evaluate("document.getElementById('stale').ariaPressed") == "true", "it does not look pressed")
        await is_accessible(browser)
        await press(browser, "stale")
        expect(len(await browser.evaluate(NAMES)) == 200, "the table stays limited")


async def page_has_means(daemon):
    """rates are means of five seconds, over a pause of the page and another process as well; the head has the sums"""
    async with shown(daemon) as browser:
        await browser.until("['Subscribers', 'Events', 'Data', 'Memory'].every((word) => document.getElementById('facts')"
                            ".textContent.includes(word)) && / in, .* out/.test(document.getElementById('facts').textContent)",
                            "the head has sums")
        rates = await browser.evaluate("""(() => {
          release();
          const rates = [], entry = (events, bytes) => [{ name: "notes", events_in: events, bytes_in: bytes }];
          const show = (seconds, events) => {
            receiveStats({ ...stats, uptime_microseconds: 1e12 + seconds * 1e6, events_in: events, events_out: 2 * events,
              by_stream: entry(events, 10 * events) });
            rates.push(rate(rows.get("notes"), "events"));
          };
          for (let second = 0; second <= 8; second += 1) show(second, second < 8 ? 0 : 10);
          const facts = document.getElementById("facts").textContent;
          show(1000, 20);
          show(1, 5);
          show(2, 8);
          return [rates.slice(-4), facts];
        })()""")
        expect(rates[0][0] == 2 and rates[0][3] == 3 and "2/s in, 4/s out" in rates[1], f"the rates are {rates}")


async def page_says_what_is_missing(daemon):
    """the page says that its address names no stream, until it names one"""
    async with shown(daemon, "#nope") as browser:
        missing = "document.getElementById('missing').textContent"
        await browser.until(f"{missing} === 'There is no stream \"nope\" that this client may read or publish to.'", "a message")
        await browser.evaluate("location.hash = '#%3Cb%3E'")
        await browser.until(f"{missing}.includes('<b>')", "another message")
        await browser.evaluate("location.hash = '#notes'")
        await browser.until(f"{missing} === '' && selected === 'notes'", "the stream is shown")


async def page_shows_clients(daemon):
    """the clients have a view, in which their connections are ended; what is refused has its sentence"""
    reader, writer = await asyncio.open_unix_connection(daemon.socket)
    writer.write(b"GET /streams/ticks?as=ndjson HTTP/1.1\r\nHost: localhost\r\n\r\n")
    rows = "[...document.querySelectorAll('#client-rows tr')]"
    async with shown(daemon) as browser:
        await press(browser, "show-clients")
        await browser.until(f"{rows}.some((row) => /http, uid .*ticks: lag/.test(row.textContent))", "the client is shown")
        await is_accessible(browser)
        button = f"{rows}.find((row) => row.textContent.includes('ticks')).querySelector('button')"
        await browser.evaluate(f"{button}.focus()")
        await browser.press("Enter", 13, "\r")
        await browser.until(f"{button}.textContent === 'Really?'", "it asks first")
        await browser.press("Enter", 13, "\r")
        await browser.until("document.getElementById('clients-status').textContent.endsWith('its connection has ended')", "it is done")
        await asyncio.wait_for(reader.read(), 20)
        await browser.until(f"!{rows}.some((row) => row.textContent.includes('ticks'))", "the client is gone")
        sentence = await browser.evaluate("control({ kick: 1000000 })")
        expect(sentence == "no client 1000000", f"the sentence is {sentence}")
        await press(browser, "show-streams")
        await browser.until(ALL_SHOWN + " && !document.getElementById('streams').hidden", "the streams are shown again")
    address = f"127.0.0.1:{reserve_port()}"
    daemon.stop()
    daemon.start('[streams.open]\nread = ["*"]\ntimer.every = "1s"\n', server=f'listen = ["{address}"]')
    async with shown(daemon, url=f"http://{address}/") as browser:
        sentence = await browser.evaluate("control({ kick: 1 })")
        expect("may not" in sentence or "root" in sentence, f"the sentence is {sentence}")
        await browser.evaluate("setView('clients')")
        await browser.until("document.getElementById('clients-status').textContent.includes('may not read \"$clients\"')", "a reason")
        await browser.until(LIVE, "the page stays live")
        browser.errors.clear()  # Chromium reports the response with 403


async def panel_publishes(daemon):
    """a value is published in the panel of a stream, and the daemon's refusal is shown"""
    async with shown(daemon, "#notes") as browser:
        status = "document.getElementById('publish-status').textContent"
        for text, wanted in [('{"typed": "<b>"}', "startsWith('Stored at')"), ("", "includes('empty')")]:
            await browser.evaluate("document.getElementById('value').focus()")
            if text:
                await browser.send("Input.insertText", text=text)
            await browser.press("Tab", 9)
            await browser.press("Enter", 13, "\r")
            await browser.until(f"{status}.{wanted}", f"the status for {text!r}")
        await browser.until("document.querySelector('#events pre')?.textContent === '{\"typed\": \"<b>\"}'", "the event is shown")
        await is_accessible(browser)
        await browser.evaluate("select('guarded')")
        await browser.evaluate("document.getElementById('value').value = '1'; publish()")
        await browser.until(f"{status}.includes('may not write')", "the refusal is shown")
        await browser.evaluate("select('ticks')")
        expect(await browser.evaluate("document.getElementById('publish-form').hidden"), "one can publish to a timer")
        browser.errors.clear()  # Chromium reports responses with 400 and 403


async def panel_pauses_and_filters(daemon):
    """a panel is paused, which ends its subscription, and filtered by the daemon, whose words for a wrong filter are shown"""
    await publish(daemon, "quotes", *({"symbol": symbol, "price": price} for price in (1, 2) for symbol in ("IBM", "AAPL")))
    async with shown(daemon, "#ticks") as browser:
        await browser.until("document.querySelectorAll('#events li').length > 3", "events are shown")
        await press(browser, "pause")
        await browser.until("rows.get('ticks').counts.subscribers === 0", "the subscription has ended")
        first = await browser.evaluate("document.querySelector('#events li').textContent")
        await asyncio.sleep(1)
        expect(await browser.evaluate("document.querySelector('#events li').textContent") == first, "it is not paused")
        await press(browser, "pause")
        await browser.until(f"(document.querySelector('#events li')?.textContent ?? {first!r}) !== {first!r}", "it goes on")
        await browser.evaluate("select('quotes')")
        await browser.evaluate("document.getElementById('where').focus()")
        await browser.send("Input.insertText", text='{"/symbol": "IBM"}')
        await browser.press("Enter", 13, "\r")
        keys = "[...document.querySelectorAll('#key-rows th')].map((cell) => cell.textContent).join()"
        await browser.until(f"{keys} === 'IBM'", "the filter applies")
        await publish(daemon, "quotes", {"symbol": "AAPL", "price": 3}, {"symbol": "IBM", "price": 3})
        await browser.until("document.querySelector('#events pre').textContent.includes('3')", "new events come")
        expect(await browser.evaluate("!document.getElementById('events').textContent.includes('AAPL')"), "others come as well")
        await browser.until(LIVE, "the page is live")
        await browser.evaluate("document.getElementById('where').value = '{\"/symbol\": {\"near\": 1}}'; applyFilter()")
        await browser.until("document.getElementById('events-status').textContent.includes('the condition for')", "the reason is shown")
        await browser.evaluate("document.getElementById('where').value = ''; applyFilter()")
        await browser.until(f"{keys} === 'AAPL,IBM'", "all is shown again")
        browser.errors.clear()  # Chromium reports the response with 400


async def panel_refreshes_and_copies(daemon):
    """a source is asked now, or its refusal is shown; events and commands are copied"""
    async with shown(daemon, "#never") as browser:
        await browser.until("!document.getElementById('refresh').hidden", "the source can be asked")
        attempts = await browser.evaluate("rows.get('never').counts.upstream.attempts")
        await press(browser, "refresh")
        await browser.until("document.getElementById('control-status').textContent !== ''", "there is an outcome")
        await browser.until(f"rows.get('never').counts.upstream.attempts > {attempts}", "the upstream is asked")
        sentence = await browser.evaluate("control({ refresh: 'ticks' })")
        expect("ticks" in sentence, f"the sentence is {sentence}")
        await browser.call(None, "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        await browser.evaluate("select('count')")
        await browser.until("document.querySelectorAll('#events li').length === 5", "its events are shown")
        for identifier, wanted in [("copy-events", '"tick"'), ("copy-command", "curl -N")]:
            await press(browser, identifier)
            await browser.until(f"document.getElementById('{identifier}').textContent === 'Copied'", "it is copied")
            text = await browser.evaluate("navigator.clipboard.readText()")
            expect(wanted in text, f"{text!r} was copied")


async def page_asks_for_a_token(daemon):
    """without a token the page of a daemon that has tokens says so, with the field open; with one it does not"""
    address = f"127.0.0.1:{reserve_port()}"
    tokens = '[streams.open]\nread = ["*"]\ntimer.every = "1s"\n[[tokens]]\nname = "office"\ncredential = "office"\nread = ["*"]\n'
    daemon.stop()
    daemon.start(tokens, server=f'listen = ["{address}"]', credentials={"office": "T0ken-of-the-office"})
    hint = "document.getElementById('token-hint').textContent"
    async with shown(daemon, url=f"http://{address}/") as browser:
        await browser.until(f"{hint}.startsWith('This page has no token') && document.getElementById('access').open", "it says so")
        await is_accessible(browser)
        await browser.evaluate("document.getElementById('token').focus()")
        await browser.send("Input.insertText", text="T0ken-of-the-office")
        await browser.press("Enter", 13, "\r")
        await browser.until(f"{hint} === '' && {LIVE}", "the hint is gone")
    async with shown(daemon) as browser:
        expect(await browser.evaluate(f"{hint} === '' && !document.getElementById('access').open"), "on a Unix socket it asks, too")


async def phone_has_short_lines(daemon):
    """on a phone the key, its event and the time are below each other, and times are short"""
    await publish(daemon, "quotes", {"symbol": "IBM", "price": 1})
    async with shown(daemon, "#quotes") as browser:
        await set_window(browser, 400, 800)
        await browser.until("document.querySelectorAll('#key-rows tr').length === 1", "the key is shown")
        tops = await browser.evaluate("[...document.querySelector('#key-rows tr').children].map((cell) => cell.getBoundingClientRect().top)")
        expect(tops == sorted(tops) and len(set(tops)) == 3, f"the cells are at {tops}")
        times = await browser.evaluate("[document.querySelector('#key-rows td.number').textContent,"
                                       "document.querySelector('#events span').textContent.split(' ')[0], clock('2020-01-02T03:04:05Z'),"
                                       "shortest(59.9), shortest(3700), shortest(90000)]")
        expect(all(len(text) == 12 and text[2] == ":" for text in times[:2]) and times[2].startswith("2020-01-0")
               and [text.replace("\u00a0", " ") for text in times[3:]] == ["59 s", "1 h", "1 d"], f"the times are {times}")


CHECKS = [
    page_shows_newest_values, page_shows_problems_at_once, page_has_means, page_says_what_is_missing, page_shows_clients,
    panel_publishes, panel_pauses_and_filters, panel_refreshes_and_copies, page_asks_for_a_token, phone_has_short_lines,
]
