"""Foreign servers as upstreams: the package websockets, also behind nginx. Each check has a daemon of its own."""

import asyncio
import contextlib
import http
import json

import websockets
from daemon import expect
from environment import reserve_port
from web_checks import curl, nginx

STREAM = """
[streams.trades]
retry = {{ first = "10ms", max = "50ms" }}
linger = "0s"
replay = 10000
buffer = {{ events = 10000, bytes = "32MiB" }}
[streams.trades.websocket]
url = "ws://127.0.0.1:{port}/ws"
send = ['{{"op":"subscribe"}}', {{ credential = "login" }}]
subprotocols = ["v1", "v2"]
bearer = {{ credential = "token" }}
"""


# Without HTTP/1.1 and these fields, nginx asks the server for no WebSocket.
PROXY = """
listen 127.0.0.1:{port};
location = /ws {{ return 307 /moved/ws; }}
location /moved/ {{
  proxy_pass http://127.0.0.1:{server}/;
  proxy_http_version 1.1;
  proxy_set_header Upgrade $http_upgrade;
  proxy_set_header Connection upgrade;
  proxy_read_timeout 3s;
}}
"""


class Exchange:
    """Counts its clients; sends what they have said, one large message, a fragmented one, and numbers."""

    def __init__(self):
        self.openings, self.refused, self.closes, self.protocols = 0, 0, [], set()

    def admit(self, connection, request):
        if self.refused < 2:  # a server that is not ready
            self.refused += 1
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "later\n")
        if request.headers.get("Authorization") != "Bearer s3cret":
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "no\n")
        return None

    async def serve(self, websocket):
        self.openings += 1
        self.protocols.add(websocket.subprotocol)
        with contextlib.suppress(websockets.ConnectionClosed):
            for _ in range(2):
                await websocket.send(json.dumps({"said": await websocket.recv()}))
            await websocket.ping()
            await websocket.send(json.dumps("x" * 1_000_000))
            await websocket.send(["[1,", "2", "]"])
            await (await websocket.ping())
            number = 0
            while True:
                await websocket.send(json.dumps({"number": number}))
                number += 1
                if number % 100 == 0:
                    await asyncio.sleep(0)
        self.closes.append(websocket.close_code)


async def values(daemon, count):
    code, body = await curl(daemon, "--no-buffer", f"http://streamd/streams/trades?as=ndjson&count={count}")
    lines = body.decode().splitlines()
    expect(code == 0 and len(lines) == count, f"{code}, {len(lines)} lines; the daemon says: {daemon.log}")
    return [json.loads(line) for line in lines]


async def a_websocket_is_subscribed_to_once(daemon):
    """a server of websockets: subprotocol, login, compressed, large and fragmented messages, 503, close frames and its restart"""
    exchange = Exchange()
    options = {"process_request": exchange.admit, "subprotocols": ["v2"], "ping_interval": 1, "ping_timeout": 20}
    port = reserve_port()
    server = await websockets.serve(exchange.serve, "127.0.0.1", port, **options)
    daemon.stop()
    daemon.start(STREAM.format(port=port), credentials={"login": '{"op":"login",\n"key":"abc"}', "token": "s3cret"})
    first, second = await asyncio.gather(values(daemon, 2004), values(daemon, 2000))
    said = [{"said": '{"op":"subscribe"}'}, {"said": '{"op":"login",\n"key":"abc"}'}, "x" * 1_000_000, [1, 2]]
    numbers = [value["number"] for value in first[4:]]
    expect(first[:4] == said, f"the first values are {str(first[:2])[:200]}")
    expect(numbers == list(range(2000)) and second == first[:2000], "the values are not those that were sent")
    expect((exchange.openings, exchange.refused) == (1, 2), f"{exchange.openings} openings, {exchange.refused} refused")
    expect(exchange.protocols == {"v2"}, f"{exchange.protocols}")
    while not exchange.closes:  # linger is over
        await asyncio.sleep(0.01)
    expect(exchange.closes == [1000], f"{exchange.closes}")
    reading = asyncio.create_task(values(daemon, 20_000))
    while exchange.openings < 2:
        await asyncio.sleep(0.01)
    server.close()  # with 1001
    await server.wait_closed()
    server = await websockets.serve(exchange.serve, "127.0.0.1", port, **options)
    await reading
    server.close()
    expect("503 Service Unavailable" in daemon.log and "source recovered" in daemon.log, daemon.log)


class Ticker:
    """Sends numbers, with a pause after the hundredth that is longer than nginx waits for anything."""

    def __init__(self):
        self.openings, self.number = 0, 0

    async def serve(self, websocket):
        self.openings += 1
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await websocket.send(json.dumps(self.number))
                self.number += 1
                await asyncio.sleep(4.5 if self.number == 100 else 0.001)


async def a_websocket_behind_nginx_is_read(daemon):
    """a WebSocket behind nginx: a redirect, 502 without the server, its read timeout, which pings avoid, and its sudden end"""
    port, behind = reserve_port(), reserve_port()
    proxy, ticker = PROXY.format(port=port, server=behind), Ticker()
    daemon.stop()
    daemon.start(f"""
[streams.trades]
retry = {{ first = "10ms", max = "50ms" }}
replay = 10000
buffer = {{ events = 10000 }}
[streams.trades.websocket]
url = "ws://127.0.0.1:{port}/ws"
ping_every = "1s"
""")
    reading = asyncio.create_task(values(daemon, 250))
    with nginx(daemon, proxy):
        while "502 Bad Gateway" not in daemon.log:
            await asyncio.sleep(0.01)
        server = await websockets.serve(ticker.serve, "127.0.0.1", behind)
        while ticker.number < 150:
            await asyncio.sleep(0.01)
        expect(ticker.openings == 1, f"{ticker.openings} openings")
    with nginx(daemon, proxy):
        received = await reading
    server.close()
    # What was on its way through nginx is lost with it.
    rising = all(former < value for former, value in zip(received, received[1:]))
    expect(received[:120] == list(range(120)) and rising, f"{received}; the daemon says: {daemon.log}")
    expect(ticker.openings == 2, f"{ticker.openings} openings; the daemon says: {daemon.log}")


CHECKS = [a_websocket_is_subscribed_to_once, a_websocket_behind_nginx_is_read]
