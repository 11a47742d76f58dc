"""The page, in a headless Chromium. Each check has a fresh daemon."""

import asyncio
import pathlib
import shlex
import urllib.request

import axe_core_python
from browser import Browser, served_on_tcp
from daemon import expect

AXE = pathlib.Path(axe_core_python.__file__).parent / "axe.min.js"

# What axe-core does not find itself: what a table with rows shown as blocks must keep.
ROLES = """[...document.querySelectorAll("tbody tr")].every((row) => row.getAttribute("role") === "row"
  && [...row.children].every((cell) => ["cell", "rowheader"].includes(cell.getAttribute("role"))))"""
ROW = """[...document.querySelectorAll("tbody tr")].find((row) => row.dataset.name === "ticks")"""


def read(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()


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
        await browser.send(  # all rows are in the window: the lines of others are not drawn
            "Emulation.setDeviceMetricsOverride", width=1280, height=3000, deviceScaleFactor=1, mobile=False)
        await browser.send("Page.navigate", url=url + "#ticks")  # which subscribes to it
        await browser.until("document.getElementById('status')?.textContent === 'Live'", "the page is live")
        await browser.until("document.querySelectorAll('tbody tr').length === 10", "all streams are shown")
        await browser.until(f"parseFloat({ROW}.querySelector('.number span').textContent) > 0", "the rate is shown")
        await browser.until(
            f"({ROW}.querySelector('polyline').getAttribute('points') ?? '').split(' ').length > 2", "the line grows")
        uptime = await browser.evaluate("document.getElementById('uptime').textContent")
        await browser.until(f"document.getElementById('uptime').textContent !== {uptime!r}", "the uptime changes")
        words = await browser.evaluate(f"[...{ROW}.children].map((cell) => cell.textContent)")
        expect(words[0] == "ticks" and words[1] == "running", f"the row shows {words}")
        await browser.evaluate("select('never')")
        await browser.until(
            "[...document.querySelectorAll('tbody tr')].find((row) => row.dataset.name === 'never')"
            ".querySelector('.message').textContent.includes('404')", "the error of a failing stream is shown")
        expect(await browser.evaluate("document.getElementById('load').textContent.includes('%')"), "no loop load")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_is_used_by_keyboard(daemon):
    """a stream is selected, closed, filtered and sorted by keyboard; the shown command works"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until("document.querySelectorAll('tbody tr').length === 10", "all streams are shown")
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
        await browser.until("document.querySelectorAll('tbody tr').length === 1", "the filter applies")
        await browser.evaluate("document.getElementById('filter').select()")
        await browser.press("Backspace", 8)
        await browser.until("document.querySelectorAll('tbody tr').length === 10", "the filter is gone")
        await browser.evaluate("document.querySelector('thead button').focus()")
        await browser.press("Enter", 13, "\r")
        names = await browser.evaluate("[...document.querySelectorAll('tbody tr')].map((row) => row.dataset.name)")
        expect(names == sorted(names, reverse=True), f"the order is {names}")
        expect(await browser.evaluate("document.querySelector('th').ariaSort") == "descending", "aria-sort")
        expect(not browser.errors, f"errors: {browser.errors}")


async def page_is_accessible(daemon):
    """axe-core finds nothing, in both colour schemes, at 320 pixels, with a stream selected; 1,000 streams are shown"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url + "#count")
        await browser.until("document.querySelectorAll('#events li').length === 5", "the selected stream is shown")
        colours = set()
        for width, scheme in [(1280, "light"), (1280, "dark"), (320, "light"), (320, "dark")]:
            await browser.send(
                "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
            await browser.send(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            found = await violations(browser)
            expect(not found, f"{width} pixels, {scheme}: {found}")
            expect(await browser.evaluate(ROLES), "a cell has no role")
            colours.add(await browser.evaluate("getComputedStyle(document.body).backgroundColor"))
            size = await browser.evaluate("document.documentElement.scrollWidth")
            expect(size <= width, f"the page is {size} pixels wide in a window of {width}")
        expect(len(colours) == 2, f"the backgrounds are {colours}")
        took = await browser.evaluate("""(() => {
          const began = performance.now();
          receiveStreams(Array.from({ length: 1000 }, (_, index) => ({ name: `s/${index}`, state: "running" })));
          receiveStats({ ...stats, uptime_microseconds: stats.uptime_microseconds + 1e6, by_stream:
            Array.from({ length: 1000 }, (_, index) => ({ name: `s/${index}`, events_in: index, bytes_in: 0 })) });
          document.body.getBoundingClientRect();
          return [rows.size, performance.now() - began];
        })()""")
        expect(took[0] == 1000 and took[1] < 10_000, f"1,000 streams: {took}")


async def page_shows_the_fleet(daemon):
    """the role of the host and staleness are shown for shared streams, as text, without a violation"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until("document.getElementById('status')?.textContent === 'Live'", "the page is live")
        texts = await browser.evaluate("""(() => {
          source.close();
          receiveStreams([
            { name: "alone", state: "running", source: "http" },
            { name: "lead", state: "running", source: "http", fleet: { role: "leader", leader: "n1", lag: 0 } },
            { name: "stale", state: "running", source: "http", message: "stale since 2026-01-01T00:00:00Z",
              fleet: { role: "follower", leader: "<b>n2", lag: 3 } }]);
          return [...document.querySelectorAll("tbody tr")].map((row) => row.children[2].textContent);
        })()""")
        wanted = ["http", "httpfleet: leader", "httpfleet: follower of <b>n2, 3 behindstale since 2026-01-01T00:00:00Z"]
        expect(texts == wanted, f"the sources are {texts}")
        for width, scheme in [(1280, "light"), (1280, "dark"), (320, "light"), (320, "dark")]:
            await browser.send(
                "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
            await browser.send(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            found = await violations(browser)
            expect(not found, f"{width} pixels, {scheme}: {found}")


async def page_recovers(daemon):
    """the page shows that it is disconnected, and recovers by itself"""
    async with served_on_tcp(daemon) as url, Browser() as browser:
        await browser.send("Page.navigate", url=url)
        await browser.until("document.getElementById('status')?.textContent === 'Live'", "the page is live")
        daemon.stop()
        await browser.until(
            "document.getElementById('status').textContent.startsWith('Disconnected since')", "it is disconnected")
        daemon.start()
        await browser.until("document.getElementById('status').textContent === 'Live'", "the page is live again")


CHECKS = [page_is_live, page_is_used_by_keyboard, page_is_accessible, page_shows_the_fleet, page_recovers]
