"""The pictures of the page in the documentation: of a daemon with streams as an installation could have them."""

import asyncio
import base64
import contextlib
import http.server
import json
import math
import threading
import time

from browser import Browser, served_on_tcp
from daemon import expect
from picture import with_palette

# Where the pictures go; None: nowhere.
FOLDER = None
# For how long the streams have events: as long as the lines of the page are, unless the pictures go nowhere.
SECONDS = 300

CONFIGURATION = """
[streams.quotes]
description = "Prices of six symbols"
publish = true
key = ".symbol"
[streams.trades]
publish = true
[streams."weather/berlin"]
http = {{ url = "{web}/berlin", every = "10s" }}
start = "always"
[streams."weather/lisbon"]
http = {{ url = "{web}/lisbon", every = "10s" }}
start = "always"
[streams.rates]
description = "Once a minute"
publish = true
expect_every = "1m"
[streams.build]
type = "text/plain"
publish = true
[streams.sensor]
exec.command = ["/bin/sh", "-c", "i=0; while sleep 0.1; do i=$((i + 7)); printf '{{\\"celsius\\": 21.%02d}}\\\\n' $((i % 100)); done"]
[streams."home/doors"]
publish = true
[streams.audit]
exec.command = ["/bin/cat", "/dev/null"]
[streams.clock]
timer.every = "1s"
"""
SYMBOLS = {"AAPL": 271.5, "AMZN": 229.1, "GOOG": 299.7, "IBM": 308.4, "MSFT": 485.9, "NVDA": 178.8}
READERS = ["quotes", "quotes", "trades", "trades,quotes", "sensor", "clock", "build", "home/doors", "clock"]


class Weather(http.server.BaseHTTPRequestHandler):
    """Lisbon's; Berlin's is out of order."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        isThere = self.path == "/lisbon"
        body = json.dumps({"celsius": round(17 + math.sin(time.time() / 60), 1), "wind": 14}).encode() if isThere else b""
        self.send_response(200 if isThere else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Publisher:
    """A connection to the daemon over which values are published."""

    async def open(self, daemon):
        self.reader, self.writer = await asyncio.open_unix_connection(daemon.socket)
        return self

    async def publish(self, name, *values):
        body = "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values).encode()
        self.writer.write(f"POST /streams/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
                          f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        answer = await self.reader.readexactly(length)
        expect(b"accepted" in answer, f"publishing to {name}: {answer}")


async def publish(daemon):
    """Publishes like an exchange, a build and a house."""
    publisher = await Publisher().open(daemon)
    await publisher.publish("rates", {"base": "EUR", "usd": 1.16})
    for tick in range(10_000):
        seconds = tick / 4
        wave = 1 + 0.5 * math.sin(seconds / 37) + 0.3 * math.sin(seconds / 11)
        symbol, price = list(SYMBOLS.items())[tick % len(SYMBOLS)]
        await publisher.publish("quotes", {"symbol": symbol, "price": round(price * (1 + 0.01 * math.sin(seconds / 20)), 2)})
        await publisher.publish("trades", *(
            {"symbol": symbol, "size": 10 * (1 + (tick + each) % 9), "price": price} for each in range(round(8 * wave))))
        if seconds % 60 < 25:
            await publisher.publish("build", f"[{tick % 240 + 1}/240] Compiling Reactive {symbol}.swift")
        if tick % 60 == 0:
            await publisher.publish("home/doors", {"door": "front", "open": tick % 120 == 0})
        await asyncio.sleep(0.25)


async def subscribe(daemon, names):
    reader, writer = await asyncio.open_unix_connection(daemon.socket, limit=1 << 20)
    writer.write(f"GET /streams/{names}?as=sse HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    while await reader.read(1 << 16):
        pass


async def take(browser, name, width, height, scheme, step):
    await browser.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    await browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    await browser.evaluate(f"{{ {step} }}; document.activeElement.blur(); scrollTo(0, 0); new Promise(requestAnimationFrame)")
    await browser.until("[...document.querySelectorAll('#rows polyline')].some((line) => line.getAttribute('points'))",
                        "the lines are drawn")
    await browser.until("document.getElementById('status').textContent === 'Live'", "the page is live")
    await asyncio.sleep(2)  # the rates need two samples, and the panel its events
    picture = base64.b64decode((await browser.send("Page.captureScreenshot", format="png"))["data"])
    expect(5_000 < len(picture) < 300_000, f"{name}.png has {len(picture)} bytes")
    if FOLDER:
        (FOLDER / f"{name}.png").write_bytes(with_palette(picture))


async def page_has_pictures(daemon):
    """pictures of the page of a daemon with streams as they could be, for its documentation"""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Weather) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        daemon.stop()
        daemon.start(CONFIGURATION.format(web=f"http://127.0.0.1:{server.server_address[1]}"))
        tasks = [asyncio.create_task(work) for work in [publish(daemon), *(subscribe(daemon, names) for names in READERS)]]
        try:
            await asyncio.sleep(SECONDS if FOLDER else 12)
            async with served_on_tcp(daemon) as url, Browser() as browser:
                await browser.send("Page.navigate", url=url)
                await browser.until("document.querySelectorAll('#rows tr').length === 10", "all streams are shown")
                await take(browser, "page", 1280, 560, "light", "")
                await take(browser, "page-clients", 1000, 420, "light", "setView('clients')")
                await take(browser, "page-phone", 360, 720, "dark", "setView('streams')")
                await take(browser, "page-stream", 1000, 900, "dark", "select('quotes')")
                expect(not browser.errors, f"errors: {browser.errors}")
        finally:
            for task in tasks:
                expect(not task.done() or not task.exception(), "a publisher or a reader has failed")
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)
            server.shutdown()


page_has_pictures.seconds = SECONDS + 60

CHECKS = [page_has_pictures]
