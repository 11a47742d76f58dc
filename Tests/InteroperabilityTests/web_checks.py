"""Checks of docs/HTTP.md with clients that know nothing of streamd: curl, httpx-sse, sseclient-py, websockets, also with rsocket in them,
nginx, and bytes that are no correct request. Each check has a daemon of its own."""

import asyncio
import base64
import contextlib
import gzip
import json
import pathlib
import shutil
import subprocess
import time
import urllib.parse

import httpx
import httpx_sse
import sseclient
import websockets
from daemon import Web, expect
from foreign import COMPLETE, COMPOSITE, Client
from rsocket.frame_parser import FrameParser
from rsocket.transports.transport import Transport

PATIENCE = 60

NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ {server} }}
}}
"""


@contextlib.contextmanager
def nginx(daemon, server):
    """nginx with these directives of a server; it ends without a word at the end."""
    configuration = daemon.folder / "nginx.conf"
    configuration.write_text(NGINX.format(folder=daemon.folder, server=server))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    identity, log = daemon.folder / "nginx.pid", daemon.folder / "nginx.log"
    identity.unlink(missing_ok=True)
    process = subprocess.Popen([program, "-p", daemon.folder, "-c", configuration], stderr=subprocess.DEVNULL)
    try:
        while not identity.exists():  # nginx writes it when it listens
            expect(process.poll() is None, f"nginx has ended: {log.read_text() if log.exists() else ''}")
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.wait()


async def curl(daemon, *arguments, data=None):
    """Returns curl's exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        "curl", "--silent", "--max-time", str(PATIENCE), "--unix-socket", daemon.socket, *arguments,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    written, _ = await process.communicate(data)
    return process.returncode, written


async def exchange(daemon, data, half_closes=True) -> bytes:
    """Sends bytes, and reads to the end."""
    reader, writer = await asyncio.open_unix_connection(daemon.socket)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        if half_closes:
            writer.write_eof()
        received = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    return received


async def curl_reads_values(daemon):
    """curl: the newest event, its tag, a wait for a newer one, and large events"""
    code, body = await curl(daemon, "http://streamd/streams/ticks?wait=30s")
    expect(code == 0 and b"tick" in body, f"{code} {body}")
    code, head = await curl(daemon, "--head", "http://streamd/streams/ticks")
    expect(code == 0 and b"200 OK" in head and b"ETag" in head, f"{code} {head}")
    code, body = await curl(daemon, "http://streamd/streams/page?wait=30s")
    expect(code == 0 and body == Web.PAGE, f"{code}, {len(body)} bytes")
    tag = daemon.folder / "tag"
    for status in ("200", "304"):
        code, body = await curl(
            daemon, "--etag-save", tag, "--etag-compare", tag, "--output", "/dev/null", "--write-out", "%{http_code}",
            "http://streamd/streams/page")
        expect((code, body.decode()) == (0, status), f"{code} {body}, not {status}")
    code, body = await curl(daemon, "http://streamd/healthz")
    expect((code, body) == (0, b"ok\n"), f"{code} {body}")


async def curl_reads_streams(daemon):
    """curl -N: lines and server-sent events, to their end"""
    code, body = await curl(daemon, "--no-buffer", "http://streamd/streams/count?as=ndjson")
    expect(code == 0 and len(body.splitlines()) == 5, f"{code} {body}")
    [json.loads(line) for line in body.splitlines()]
    code, body = await curl(daemon, "--no-buffer", "--http1.0", "http://streamd/streams/count?as=sse")
    expect(code == 0 and body.count(b"data: ") == 6 and b"event: end" in body, f"{code} {body}")
    code, body = await curl(daemon, "--no-buffer", "http://streamd/streams/page?as=ndjson&ids=1&count=1")
    [line] = body.splitlines()
    expect(code == 0 and base64.b64decode(json.loads(line)["data_base64"]) == Web.PAGE, f"{code}, {len(body)} bytes")


async def curl_filters_events_and_sees_the_newest(daemon):
    """curl: a filter, and a marker after the last event"""
    values = b'{"symbol":"MSFT"}\n{"symbol":"AAPL"}\nno JSON\n'
    code, body = await curl(
        daemon, "--header", "Content-Type: application/x-ndjson", "--data-binary", "@-", "http://streamd/streams/notes",
        data=values)
    expect((code, json.loads(body)) == (0, {"accepted": 3}), f"{code} {body}")
    code, body = await curl(
        daemon, "--no-buffer", "--get", "--data-urlencode", 'where={"/symbol":"AAPL"}',
        "http://streamd/streams/notes?as=ndjson&ids=1&marker=1&follow=0")
    [event, marker] = [json.loads(line) for line in body.splitlines()]
    expect(code == 0 and event["data"] == {"symbol": "AAPL"}, f"{code} {body}")
    expect(marker.get("caught_up") is True and int(marker["id"]) == int(event["id"]) + 1, f"{body}")


async def libraries_quote_as_they_do(daemon):
    """httpx and urllib: spaces as plus signs, the path of the socket as the host, and a body that is compressed"""
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=daemon.socket), timeout=PATIENCE) as client:
        values = [{"city": "New York"}, {"city": "New+York"}]
        for value in values:
            (await client.post("http://streamd/streams/notes", json=value)).raise_for_status()
        refused = await client.post(
            "http://streamd/streams/notes", content=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})
        expect(refused.status_code == 415, f"{refused}")
        expect(refused.headers["accept-encoding"] == "identity", f"{refused.headers}")
        host = {"Host": urllib.parse.quote(daemon.socket, safe="")}
        for value in values:
            query = {"where": json.dumps({"/city": value["city"]}), "as": "ndjson", "follow": 0, "from": "replay"}
            for target in (urllib.parse.urlencode(query), str(httpx.QueryParams(query))):
                found = await client.get(f"http://streamd/streams/notes?{target}", headers=host)
                expect(found.status_code == 200 and found.json() == value, f"{target}: {found} {found.text}")


async def curl_publishes(daemon):
    """curl: values are published one at a time and by the line, with an upload of unknown length"""
    code, body = await curl(daemon, "--data-binary", "@-", "http://streamd/streams/notes", data=b"one")
    expect((code, json.loads(body)) == (0, {"accepted": 1}), f"{code} {body}")
    code, body = await curl(
        daemon, "--header", "Content-Type: application/x-ndjson", "--header", "Transfer-Encoding: chunked",
        "--data-binary", "@-", "http://streamd/streams/notes", data=b"".join(b"%d\n" % n for n in range(1000)))
    expect((code, json.loads(body)) == (0, {"accepted": 1000}), f"{code} {body}")
    # A body of more than 1 MiB: curl asks first.
    code, body = await curl(daemon, "--data-binary", "@-", "http://streamd/streams/guarded", data=b"x" * 3_000_000)
    expect(code == 0 and json.loads(body)["status"] == 403, f"{code} {body}")
    code, body = await curl(
        daemon, "--output", "/dev/null", "--write-out", "%{http_code}", "--data-binary", "@-",
        "http://streamd/streams/ticks", data=b"x")
    expect((code, body) == (0, b"405"), f"{code} {body}")


async def a_stopped_daemon_ends_responses(daemon):
    """curl: a response ends with its last chunk when the daemon stops, and without one when the daemon dies"""
    for ends, wanted in ((daemon.ask_to_stop, 0), (lambda: daemon.process.kill(), 18)):
        if daemon.process.poll() is not None:
            daemon.start()
        running = asyncio.create_task(curl(daemon, "--no-buffer", "http://streamd/streams/ticks?as=raw"))
        await asyncio.sleep(0.3)
        ends()
        code, body = await running
        expect(code == wanted and body, f"{code}, not {wanted}: {body[:200]}")
        await asyncio.to_thread(daemon.process.wait)
    daemon.start()


async def a_half_closed_peer_is_answered(daemon):
    """a peer that sends nothing more, as `nc -N`, receives its responses"""
    request = b"GET /streams/count?as=raw HTTP/1.0\r\n\r\n"
    body = await exchange(daemon, request)
    expect(body.startswith(b"HTTP/1.1 200") and body.count(b"tick") == 5, f"{body}")
    value = b"POST /streams/notes HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nvalue"
    body = await exchange(daemon, value * 3)
    expect(body.count(b'{"accepted":1}') == 3, f"{body}")


async def event_streams_are_read_by_libraries(daemon):
    """httpx-sse and sseclient-py: ids, data, types, and several streams in one response"""
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=daemon.socket), timeout=PATIENCE) as client:
        async with httpx_sse.aconnect_sse(client, "GET", "http://streamd/streams/count") as source:
            source.response.raise_for_status()
            events = [event async for event in source.aiter_sse() if event.data]
        expect([event.event for event in events] == ["message"] * 5 + ["end"], f"{events}")
        expect([int(event.id) - int(events[0].id) for event in events[:5]] == list(range(5)), f"{events}")
        expect(json.loads(events[5].data) == {"reason": "finished"}, f"{events[5]}")
        # What a browser does with it: asks again after the last event, and is told that nothing follows.
        again = await client.get(
            "http://streamd/streams/count", headers={"Accept": "text/event-stream", "Last-Event-ID": events[4].id})
        expect(again.status_code == 204, f"{again}")
        async with client.stream("GET", "http://streamd/streams/count,ticks?as=sse") as response:
            seen = {}
            text = b""
            async for part in response.aiter_bytes():
                text += part
                complete = text[: text.rfind(b"\n\n") + 2]
                events = list(sseclient.SSEClient(iter([complete])).events())
                seen = {event.event: event.id for event in events if event.event in ("count", "ticks")}
                if len(seen) == 2:
                    break
            expect(all(len(position.split(",")) == 2 for position in seen.values()), f"{seen}")
        none = await client.get("http://streamd/streams/nothing", headers={"Accept": "text/event-stream"})
        expect(none.status_code == 404, f"{none}")
        expect(none.headers["content-type"] == "application/problem+json", f"{none.headers}")


class Messages(Transport):
    """RSocket in a WebSocket: a frame is a binary message."""

    def __init__(self, websocket):
        super().__init__()
        self.websocket = websocket
        self.frames = []
        self.parser = FrameParser()

    async def send_frame(self, frame):
        await self.websocket.send(frame.serialize())

    async def next_frame_generator(self):
        try:
            message = await self.websocket.recv()
        except websockets.ConnectionClosed:
            return None
        return self.parser.receive_data(message, header_length=0)

    async def close(self):
        await self.websocket.close()


async def rsocket_runs_in_a_websocket(daemon):
    """websockets and rsocket: credit, replay, large events and publishing in a WebSocket"""
    async with websockets.unix_connect(daemon.socket, "ws://localhost/rsocket", compression=None) as websocket:
        await (await websocket.ping(b"alive"))
        async with Client(Messages(websocket), COMPOSITE) as client:
            subscriber = client.subscribe("count", credit=3)
            events = await subscriber.events(3)
            subscriber.subscription.request(2)
            events += await subscriber.events(2)
            expect(await subscriber.end() == COMPLETE, "it did not complete")
            expect([event.id - events[0].id for event in events] == list(range(5)), "ids")
            [page] = await client.subscribe("page").events(1)
            expect(page.data == Web.PAGE, f"{len(page.data)} bytes")
            expect(await client.publish("notes", [b"a", b"b"]).end() == COMPLETE, "publishing did not complete")
            read = await client.subscribe("notes").events(2)
            expect([event.data for event in read] == [b"a", b"b"], f"{read}")
    async with websockets.unix_connect(daemon.socket, "ws://localhost/rsocket") as websocket:
        await websocket.send("text")
        try:
            await asyncio.wait_for(websocket.recv(), PATIENCE)
        except websockets.ConnectionClosed as closed:
            expect(closed.rcvd is not None and closed.rcvd.code == 1003, f"{closed}")


async def a_websocket_carries_events_and_values(daemon):
    """websockets: events as messages, envelopes, large ones, values and what is refused, a refused handshake, and the stop"""
    def connect(target, **options):
        return websockets.unix_connect(daemon.socket, f"ws://localhost/streams/{target}", max_size=None, **options)

    async with connect("count") as socket:
        ticks = [json.loads(message)["tick"] async for message in socket]
        expect(len(ticks) == 5 and socket.close_code == 1000, f"{ticks} {socket.close_code} {socket.close_reason}")
    async with connect("page?count=1") as socket:
        expect(await socket.recv() == Web.PAGE, "another page")
    async with connect("ticks,count?ids=1") as socket:
        streams = {json.loads(await socket.recv())["stream"] for _ in range(12)}
        expect(streams == {"ticks", "count"}, f"{streams}")
        await (await socket.ping())
    try:
        async with connect("nothing"):
            expect(False, "a stream that does not exist is open")
    except websockets.InvalidStatus as refusal:
        expect(refusal.response.status_code == 404, f"{refusal}")
    async with connect("quotes?publish=1") as socket:
        await socket.send(['{"symbol":', '"A"}'])
        expect(json.loads(await socket.recv()) == {"accepted": 1}, "no confirmation")
        await socket.send("")
        refused = json.loads(await socket.recv())
        expect((refused["reason"], refused["value"]) == ("invalid-request", 2), f"{refused}")
    async with connect("quotes") as socket, connect("notes?publish=1") as publisher:
        expect(await socket.recv() == '{"symbol":"A"}', "another value")
        await socket.send("a message")
        await socket.wait_closed()
        expect(socket.close_code == 1008, f"{socket.close_code} {socket.close_reason}")
        daemon.ask_to_stop()
        await publisher.wait_closed()
        expect(publisher.close_code == 1001, f"{publisher.close_code} {publisher.close_reason}")


async def a_buffering_proxy_passes_events_on(daemon):
    """nginx with its default buffering, which asks in HTTP/1.0: events arrive as they come, values are published"""
    proxy = str(daemon.folder / "web.sock")
    # With defaults: responses are buffered, and streamd is asked in HTTP/1.0.
    with nginx(daemon, f"listen unix:{proxy}; location / {{ proxy_pass http://unix:{daemon.socket}; }}"):
        for _ in range(PATIENCE * 20):
            if pathlib.Path(proxy).exists():
                break
            await asyncio.sleep(0.05)
        transport = httpx.AsyncHTTPTransport(uds=proxy)
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE) as client:
            async with httpx_sse.aconnect_sse(client, "GET", "http://streamd/streams/ticks") as source:
                count = 0
                async for event in source.aiter_sse():
                    count += event.event == "message"
                    if count == 20:
                        break
            response = await client.get("http://streamd/streams/page?wait=30s")
            expect(response.content == Web.PAGE, f"{len(response.content)} bytes")
            response = await client.get("http://streamd/streams/page", headers={"If-None-Match": response.headers["etag"]})
            expect(response.status_code == 304, f"{response}")
            lines = "".join(f"{number}\n" for number in range(1000))
            response = await client.post(
                "http://streamd/streams/notes", content=lines, headers={"Content-Type": "application/x-ndjson"})
            expect(response.json() == {"accepted": 1000}, response.text)
            response = await client.get("http://streamd/streams/count?as=raw")
            expect(response.content.count(b"tick") == 5, response.text)


HEAD = b"POST /streams/notes HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = b"GET /streams/count HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

# What servers and proxies have read in different ways. Each gets one response, with 400, and the connection ends.
AMBIGUOUS = [
    HEAD + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    HEAD + b"Content-Length: 0x5\r\n\r\nabcde",
    HEAD + b"Content-Length: 5 5\r\n\r\nabcde",
    HEAD + b"Content-Length: -1\r\n\r\n",
    HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    HEAD + b"Content-Length:\r\n\r\n",
    HEAD + b"Content-Length : 5\r\n\r\nabcde",
    HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: identity\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding\r\n : chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n",
    HEAD + b"X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"X\0: y\r\n\r\n",
    HEAD + b"Host: y\r\n\r\n",
    b"GET http://a@b/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    b"GET / http/1.1\r\nHost: x\r\n\r\n",
    b"GET /\r\nHost: x\r\n\r\n",
    CHUNKED + b"5;\r\nabcde\r\n0\r\n\n",
    CHUNKED + b"5 \r\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"5\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"5\r\nabcdeX\r\n0\r\n\r\n",
    CHUNKED + b"+5\r\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"5_0\r\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"10000000000000005\r\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"5;" + b"a" * 300 + b"\r\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"0\r\nX: y\n\r\n",
]


async def ambiguous_requests_are_refused(daemon):
    """requests that servers read in different ways get 400, and nothing behind them is read as a request"""
    for request in AMBIGUOUS:
        received = await exchange(daemon, request + SMUGGLED, half_closes=False)
        expect(received.startswith(b"HTTP/1.1 400 "), f"{request}: {received[:200]}")
        expect(received.count(b"\r\nDate:") == 1 and b"Connection: close" in received, f"{request}: {received}")
    code, body = await curl(daemon, "http://streamd/streams/notes?as=ndjson&ids=1&follow=0")
    expect((code, body) == (0, b""), f"a value was published: {body}")


async def garbage_costs_nobody_else(daemon):
    """garbage of every kind ends its own connection alone"""
    ended = [b"G" * 9000, b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 101, b"A\r\n\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    for data in ended:
        received = await exchange(daemon, data)
        expect(not received.startswith(b"HTTP/1.1 200"), f"{data[:50]}: {received[:200]}")
    code, body = await curl(daemon, "http://streamd/healthz")
    expect((code, body) == (0, b"ok\n"), f"{code} {body}")


CHECKS = [
    curl_reads_values,
    curl_reads_streams,
    curl_filters_events_and_sees_the_newest,
    libraries_quote_as_they_do,
    curl_publishes,
    a_stopped_daemon_ends_responses,
    a_half_closed_peer_is_answered,
    event_streams_are_read_by_libraries,
    rsocket_runs_in_a_websocket,
    a_websocket_carries_events_and_values,
    a_buffering_proxy_passes_events_on,
    ambiguous_requests_are_refused,
    garbage_costs_nobody_else,
]
