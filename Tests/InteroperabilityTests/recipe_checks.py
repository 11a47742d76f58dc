"""The recipes of docs/RECIPES.md, with servers that behave as they say. Each check has a daemon of its own, which it starts
again with the recipe's streams."""

import asyncio
import contextlib
import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

import websockets
from daemon import expect
from web_checks import curl

PROJECT = pathlib.Path(__file__).resolve().parents[2]
RECIPES = (PROJECT / "docs" / "RECIPES.md").read_text()


def blocks(heading, language):
    """The blocks in a language of one recipe."""
    part = RECIPES.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(rf"^```{language}\n(.*?)^```$", part, re.M | re.S)
    expect(found, f"{heading} has no {language}")
    return found


def state_changed(entity, state):
    data = {"entity_id": entity, "old_state": None, "new_state": {"entity_id": entity, "state": state, "attributes": {}}}
    return json.dumps({"event_type": "state_changed", "data": data, "origin": "LOCAL"})


class Server(http.server.BaseHTTPRequestHandler):
    """A portal with cookies, a language model, and Home Assistant."""

    def setup(self):
        super().setup()
        self.responses = {
            "/inbox": (self.headers_have("Cookie", "session=kept"), '{"unread":3}\n'),
            "/board": (self.headers_have("Cookie", "session=fresh"), '{"card":1}\n{"card":2}\n'),
            "/login": (lambda: b"password=secret" in self.body, "welcome\n"),
            "/v1/chat/completions": (
                lambda: json.loads(self.body)["stream"] and self.headers["Authorization"] == "Bearer key",
                self.tokens),
            "/thoughts": (lambda: True, self.tokens),
            "/v1/current": (lambda: True, ""),
            "/api/stream": (self.headers_have("Authorization", "Bearer token"), "".join(
                f"data: {data}\n\n" for data in [
                    "ping", state_changed("light.kitchen", "on"), '{"event_type":"call_service","data":{}}',
                    state_changed("light.hall", "off"), state_changed("light.kitchen", "off")])),
        }

    chunks = "".join(
        f'data: {{"id":"1","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'
        for text in ("Hel", "lo")) + "data: [DONE]\n\n"
    tokens = 'data: {"token":"Hel"}\n\ndata: {"token":"lo"}\n\ndata: [DONE]\n\n'

    def weather(self):
        """Of each city that is asked for."""
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        return json.dumps([{"city": city, "celsius": 4} for city in query["cities"].split(",")])

    def headers_have(self, name, value):
        return lambda: self.headers[name] == value

    def do_GET(self):
        self.body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        is_admitted, text = self.responses[urllib.parse.urlsplit(self.path).path]
        if b"messages" in self.body:
            text = self.chunks
        if not text:
            text = self.weather()
        self.send_response(200 if is_admitted() else 403)
        self.send_header("Content-Type", "text/event-stream" if text.startswith("data:") else "application/json")
        if self.path == "/login":
            self.send_header("Set-Cookie", "session=fresh; Path=/")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served():
    """Yields a function that puts the server in the place of those of the recipes."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        yield lambda text: re.sub(r"https?://(portal|llm|weather)\.example\.org|http://homeassistant.local:8123", url, text)
        server.shutdown()


@contextlib.contextmanager
def upstreams():
    """Yields a function that asks the upstreams of Tests/TestSupport, and has their URL."""
    script = PROJECT / "Tests" / "TestSupport" / "Server" / "server.py"
    with subprocess.Popen([sys.executable, "-B", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        def ask(path):
            with urllib.request.urlopen(ask.url + path, timeout=30) as response:
                return json.loads(response.read() or b"null")

        try:
            ask.url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
            yield ask
        finally:
            process.stdin.close()


def start(daemon, streams, **options):
    """A user with a service has its group; this machine may not."""
    daemon.stop()
    daemon.start(streams.replace("group:streamd", "*"), **options)


async def values(daemon, stream, count, query="from=replay"):
    """The first values of a stream, which come sooner or later."""
    code, body = await curl(daemon, "--no-buffer", f"http://streamd/streams/{stream}?as=ndjson&count={count}&{query}")
    lines = body.decode().splitlines()
    expect(code == 0 and len(lines) == count, f"{stream} has {code} {lines}; the daemon says: {daemon.log}")
    return [json.loads(line) for line in lines]


async def recipe_of_cookies_works(daemon):
    """the recipe for feeds behind a cookie works, with a cookie and with a login"""
    with served() as local:
        [inbox, board] = blocks("A feed behind a cookie", "toml")
        credentials = {"portal-cookie": "session=kept", "portal-password": "secret"}
        start(daemon, local(inbox + board), credentials=credentials)
        expect(await values(daemon, "inbox", 1) == [{"unread": 3}], "the cookie was not sent")
        expect((await values(daemon, "board", 2, "from=-2"))[-1].keys() == {"card"}, "the login failed")


async def recipe_of_answers_works(daemon):
    """the recipes for answers of language models work: several readers, one that comes back, and the package openai as it is"""
    with served() as local, upstreams() as ask:
        [answers, thoughts] = blocks("The answer of a language model", "toml")
        [asked, left, called] = blocks("The answer of a language model", "sh")
        [library] = blocks("The answer of a language model", "python")
        start(daemon, local(answers + thoughts), credentials={"model": "key"})
        (daemon.folder / "question.json").write_text('{"stream":true}')
        path = f"{daemon.program.parent}:{os.environ['PATH']}"

        async def run(*command):
            done = await asyncio.to_thread(
                subprocess.run, command, cwd=daemon.folder, timeout=30, capture_output=True, text=True,
                env={**os.environ, "PATH": path, "STREAMD_SOCKET": daemon.socket})
            expect(done.returncode == 0, f"{done}")
            return done.stdout

        def here(text):
            return local(text).replace("/run/streamd/streamd.sock", daemon.socket)

        wanted = [{"token": "Hel"}, {"token": "lo"}]
        lines = "".join(f"{json.dumps(value, separators=(',', ':'))}\n" for value in wanted) + "[DONE]\n"
        await run("bash", "-euo", "pipefail", "-c", here(asked))
        for reader in ("first", "second", "again"):
            expect((daemon.folder / reader).read_text() == lines, f"{reader} has read {(daemon.folder / reader).read_text()}")
        events = await run("bash", "-euo", "pipefail", "-c", here(called))
        expect(re.findall(r"^data: (.*)$", events, re.M)[:3] == lines.splitlines(), f"the answer is {events}")
        printed = await run(sys.executable, "-c", here(library))
        expect(printed == "Hello", f"openai has read {printed}")
        # The first request comes with the first subscriber.
        expect(await values(daemon, "thoughts", 2) == wanted, "the thoughts are others")
        # Another model, whose answer does not end by itself.
        model = re.sub(r'(?m)^url = .*$', f'url = "{ask.url}/model/m?words=1000000&pause=0.01"', answers)
        start(daemon, model, credentials={"model": "key"})
        await run("bash", "-euo", "pipefail", "-c", left)
        read = [json.loads(line) for name in ("begin", "rest") for line in (daemon.folder / name).read_text().splitlines()]
        expect([event["data"]["number"] for event in read] == [1, 2, 3, 4, 5], f"a reader that came back has read {read}")
        while ask("/modelled/m")["left"] == 0:
            await asyncio.sleep(0.01)
        expect(sum(ask("/modelled/m")["requests"].values()) == 1, "the request was made twice")


async def recipe_of_telegram_works(daemon):
    """the recipe for a bot of Telegram has each message once, and is its only reader"""
    with upstreams() as ask:
        [messages] = blocks("Messages to a bot of Telegram", "toml")
        url = f"{ask.url}/telegram/t/getUpdates?total=10"
        start(daemon, messages.replace('"1s"', '"10ms"'), credentials={"telegram": url})
        for _ in range(2):
            read = await values(daemon, "messages", 10, "from=-1h")
            expect([update["message"]["number"] for update in read] == list(range(1, 11)), f"the messages are {read}")
        told = ask("/told/t")
        expect((told["twice"], told["refused"]) == (0, 0), f"Telegram has seen {told}")


async def recipe_of_github_works(daemon):
    """the recipe for events of GitHub has their pages, and asks when it may"""
    with upstreams() as ask:
        [activity] = blocks("Events of GitHub", "toml")
        url = f"{ask.url}/github/g?list=1&interval=0.1&limit=1000"
        expect("https://api.github.com/repos/swiftlang/swift/events" in activity, "the URL is another one")
        activity = activity.replace("https://api.github.com/repos/swiftlang/swift/events", url).replace('"1m"', '"10ms"')
        start(daemon, activity, credentials={"github": "secret"})
        pages = await values(daemon, "activity", 3, "from=-1h")
        expect([page[0] for page in pages] == [{"id": str(n), "type": "PushEvent", "login": "octocat"} for n in range(3)], f"{pages}")
        listened = ask("/listened/g")
        expect((listened["early"], listened["over"]) == (0, 0), f"GitHub was asked too often: {listened}")


async def recipe_of_graphql_works(daemon):
    """the recipe for a query of GraphQL has each order once, page by page"""
    with upstreams() as ask:
        [orders] = blocks("A query of GraphQL", "toml")
        expect("https://shop.example.org/graphql" in orders, "the URL is another one")
        start(daemon, orders.replace("https://shop.example.org/graphql", f"{ask.url}/graphql/o?total=20"),
              credentials={"shop": "secret"})
        # All of them by one tick: it is half a minute to the next one.
        expect(await values(daemon, "orders", 20, "from=-1h") == list(range(1, 21)), "the orders are others")
        positions = ask("/told/o")["positions"]
        expect(positions[:8] == ["", "c3", "c6", "c9", "c12", "c15", "c18", "c20"][:len(positions)], f"{positions}")


async def recipe_of_oauth2_works(daemon):
    """the recipe for an API with OAuth2 gets a token, and another one before it expires"""
    with upstreams() as ask:
        [balance] = blocks("An API with OAuth2", "toml")
        for url, path in (("https://api.example.org/v1/balance", "/guarded/b"), ("https://id.example.org/token", "/token/b?lifetime=1")):
            expect(url in balance, f"{url} is not in the recipe")
            balance = balance.replace(url, ask.url + path)
        balance = balance.replace('client_id = "streamd"', 'client_id = "me"').replace('"10s"', '"50ms"').replace('"10m"', '"100ms"')
        start(daemon, balance, credentials={"orders": "s3cret/+&"})
        expect(len(await values(daemon, "balance", 30, "from=-1h")) == 30, "no balance")
        granted = ask("/granted/b")
        expect(granted["refused"] == 0 and granted["requests"] >= 2 and len(granted["uses"]) >= 2, f"{granted}")
        expect(granted["last"]["scope"] == "read", f"{granted}")


async def recipe_of_home_assistant_works(daemon):
    """the recipe for Home Assistant gives a state per entity"""
    with served() as local:
        [home] = blocks("Home Assistant", "toml")
        start(daemon, local(home), credentials={"home-assistant": "token"})
        wanted = [{"entity": "light.kitchen", "state": "on"}, {"entity": "light.hall", "state": "off"},
                  {"entity": "light.kitchen", "state": "off"}]
        expect(await values(daemon, "home", 3) == wanted, "the states are others")
        code, body = await curl(daemon, "http://streamd/streams/home?key=light.hall")
        expect((code, json.loads(body)) == (0, wanted[1]), f"the lamp has {code} {body}")


async def recipe_of_prometheus_works(daemon):
    """the metrics in the recipe for Prometheus exist; with promtool, its rules and configuration are valid"""
    [scrape, rules] = blocks("Prometheus", "yaml")
    start(daemon, '[streams.page]\nhttp = { url = "%s/page", every = "1h" }\nstart = "always"\nexpect_every = "1h"\nkeep = "disk"\n'
          'type = "application/octet-stream"\n' % daemon.web.url)
    await curl(daemon, "http://streamd/streams/page?wait=30s")
    code, metrics = await curl(daemon, "http://streamd/metrics")
    for name in set(re.findall(r"streamd_\w+", rules)):
        known = name == "streamd_config_last_reload_successful" or f"\n{name}{{" in metrics.decode()
        expect(code == 0 and known and f" {name} ".encode() in metrics, f"there is no metric {name}")
    if tool := shutil.which("promtool"):
        for kind, text in [("config", scrape), ("rules", rules)]:
            (daemon.folder / "prometheus.yml").write_text(text)
            done = subprocess.run([tool, "check", kind, daemon.folder / "prometheus.yml"], capture_output=True)
            expect(done.returncode == 0, f"{done}")


async def recipe_of_nginx_works(daemon):
    """the recipe for nginx passes on streams as they come, values, the page, and WebSockets"""
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    expect(program, "no nginx; install the package nginx")
    [site], [server] = blocks("nginx in front", "nginx"), blocks("nginx in front", "toml")
    start(daemon, '[streams.ticks]\ntimer.every = "100ms"\n[streams.notes]\npublish = true\n',
          server=server.removeprefix("[server]\n"))
    folder = daemon.folder
    site = site.replace("/run/streamd/streamd.sock", daemon.socket).replace("listen 80", f"listen unix:{folder}/web.sock")
    paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ["proxy", "fastcgi", "uwsgi", "scgi"])
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; events {{ }}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body; {paths} {site} }}")
    process = subprocess.Popen([program, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    try:
        while not (folder / "web.sock").exists():
            expect(process.poll() is None, "nginx ended")
            await asyncio.sleep(0.05)

        async def ask(*arguments):
            process = await asyncio.create_subprocess_exec(
                "curl", "--silent", "--max-time", "30", "--unix-socket", folder / "web.sock", *arguments,
                stdout=subprocess.PIPE)
            return process.returncode, (await process.communicate())[0]

        _, page = await ask("http://streamd.example.org/")
        expect(b"<title>streamd</title>" in page, f"the page is {page[:100]}")
        _, lines = await ask("--no-buffer", "http://streamd.example.org/streams/ticks?as=ndjson&count=5")
        expect(len(lines.splitlines()) == 5, f"the ticks are {lines}")
        _, answer = await ask("http://streamd.example.org/streams/notes", "--data", "1")
        expect(json.loads(answer) == {"accepted": 1}, f"publishing: {answer}")
        _, answer = await ask("http://other.example.org/streams/notes")
        expect(json.loads(answer)["status"] == 403, f"another name: {answer}")
        async with websockets.unix_connect(
                str(folder / "web.sock"), uri="ws://streamd.example.org/rsocket", subprotocols=None) as socket:
            expect(socket.state.name == "OPEN", "no WebSocket")
    finally:
        process.terminate()
        process.wait()


KRAKEN = [
    {"channel": "status", "type": "update", "data": [{"version": "2.0.9", "system": "online", "api_version": "v2",
                                                      "connection_id": 12393906104898154338}]},
    {"method": "subscribe", "result": {"channel": "trade", "snapshot": True, "symbol": "BTC/USD"}, "success": True,
     "time_in": "2026-01-02T07:48:29.123456Z", "time_out": "2026-01-02T07:48:29.123500Z"},
    {"channel": "heartbeat"},
    {"channel": "trade", "type": "update", "data": [
        {"symbol": "BTC/USD", "side": "sell", "price": 1, "qty": 0.5, "ord_type": "market", "trade_id": 4665906,
         "timestamp": "2026-01-02T07:49:37.708706Z"},
        {"symbol": "ETH/USD", "side": "buy", "price": 2, "qty": 40.0, "ord_type": "limit", "trade_id": 4665907,
         "timestamp": "2026-01-02T07:49:37.708706Z"}]},
]
BINANCE = [
    {"result": None, "id": 1},
    {"e": "trade", "E": 1672515782136, "s": "BTCUSDT", "t": 12345, "p": "0.00100000", "q": "100.00000000",
     "T": 1672515782000, "m": True, "M": True},
]
COINBASE = [
    {"type": "subscriptions", "channels": [{"name": "matches", "product_ids": ["BTC-USD"], "account_ids": None}]},
    {"type": "last_match", "trade_id": 10, "sequence": 50, "maker_order_id": "ac928c66-ca53-498f-9c13-a110027a60e8",
     "taker_order_id": "132fb6ae-456b-4654-b4e0-d681ac05cea1", "time": "2026-01-02T08:19:27.028459Z",
     "product_id": "BTC-USD", "size": "5.23512", "price": "400.23", "side": "sell"},
]


async def recipe_of_an_exchange_works(daemon):
    """the recipe for an exchange gives many bots the trades of one connection to each of three exchanges"""
    [streams] = blocks("One exchange connection for many bots", "toml")
    [command] = blocks("One exchange connection for many bots", "sh")
    connections, subscribed = [], {name: asyncio.Event() for name in ("kraken", "binance", "coinbase")}

    def exchange(name, messages, subscription):
        async def serve(socket):
            connections.append(name)
            with contextlib.suppress(websockets.ConnectionClosed):
                asked = json.loads(await socket.recv())
                expect(subscription in asked.values(), f"{name} is asked {asked}")
                subscribed[name].set()
                for other in ("kraken", "coinbase"):  # the events of one alone may be all that a bot wants
                    await subscribed[other].wait()
                while True:
                    for message in messages:
                        await socket.send(json.dumps(message))
                    await asyncio.sleep(0.02)

        return websockets.serve(serve, "127.0.0.1", 0)

    async with contextlib.AsyncExitStack() as servers:
        for name, messages, subscription, url in (
                ("kraken", KRAKEN, "subscribe", "wss://ws.kraken.com"),
                ("binance", BINANCE, "SUBSCRIBE", "wss://stream.binance.com:9443"),
                ("coinbase", COINBASE, "subscribe", "wss://ws-feed.exchange.coinbase.com")):
            server = await servers.enter_async_context(exchange(name, messages, subscription))
            expect(url in streams, f"{name} is another server")
            streams = streams.replace(url, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        start(daemon, streams)

        async def bot():
            words = shlex.split(command)
            process = await asyncio.create_subprocess_exec(
                daemon.program.parent / words[0], *words[1:], "--count", "20", stdout=subprocess.PIPE,
                env={**os.environ, "STREAMD_SOCKET": daemon.socket})
            return [json.loads(line) for line in (await process.communicate())[0].splitlines()]

        for trades in await asyncio.gather(*[bot() for _ in range(5)]):
            expect(len(trades) == 20 and {trade["symbol"] for trade in trades} == {"BTC-USD"}, f"a bot has {trades}")
            expect(
                {(trade["exchange"], trade["price"], trade["size"]) for trade in trades} == {
                    ("kraken", 1, 0.5), ("coinbase", 400.23, 5.23512)}, f"a bot has {trades}")
        [tether] = await values(daemon, "binance", 1)
        expect(
            tether == {"exchange": "binance", "symbol": "BTC-USDT", "price": 0.001, "size": 100,
                       "time": "2022-12-31T19:43:02Z"}, f"a trade of binance is {tether}")
        expect(sorted(connections) == ["binance", "coinbase", "kraken"], f"the connections are {connections}")
        daemon.stop()


async def recipe_of_names_works(daemon):
    """the recipes for one upstream for all names have one connection, or one request, for the names that are read"""
    streams = "\n".join(blocks("One upstream for all names", "toml"))
    asked = {"binance": [], "kraken": [], "home": []}

    async def binance(say, message):
        await say({"result": None, "id": message["id"]})
        if message["method"] == "SUBSCRIBE":
            for name in message["params"]:
                symbol = name.removesuffix("@trade").upper()
                await say({"stream": name, "data": {"e": "trade", "s": symbol, "p": "0.5", "q": "100"}})

    async def kraken(say, message):
        for symbol in message["params"]["symbol"] if message["method"] == "subscribe" else []:
            if symbol.startswith("NO"):
                await say({"error": "Currency pair not supported", "method": "subscribe", "success": False, "symbol": symbol})
            else:
                await say({"method": "subscribe", "success": True, "result": {"channel": "trade", "symbol": symbol}})
                await say({"channel": "trade", "type": "snapshot", "data": [{"symbol": symbol, "price": 7, "qty": 2, "ord_type": "limit"}]})

    async def home(say, message):
        if message["type"] == "auth":
            return await say({"type": "auth_ok"})
        await say({"id": 1, "type": "result", "success": True})
        for _ in range(100):
            for entity, state in (("light.kitchen", "on"), ("light.hall", "off")):
                data = {"entity_id": entity, "new_state": {"entity_id": entity, "state": state, "attributes": {}}}
                await say({"id": 1, "type": "event", "event": {"event_type": "state_changed", "data": data}})
            await asyncio.sleep(0.05)

    def service(talk):
        async def serve(socket):
            async def say(message):
                await socket.send(json.dumps(message))

            with contextlib.suppress(websockets.ConnectionClosed):
                if talk is home:
                    await say({"type": "auth_required"})
                async for text in socket:
                    asked[talk.__name__].append(json.loads(text))
                    await talk(say, asked[talk.__name__][-1])

        return websockets.serve(serve, "127.0.0.1", 0)

    async with contextlib.AsyncExitStack() as servers:
        for talk, url in ((binance, "wss://stream.binance.com:9443"), (kraken, "wss://ws.kraken.com"), (home, "ws://homeassistant.local:8123")):
            server = await servers.enter_async_context(service(talk))
            expect(url in streams, f"{url} is not in the recipe")
            streams = streams.replace(url, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        local = servers.enter_context(served())
        start(daemon, local(streams), credentials={"home-assistant-login": '{"type":"auth","access_token":"token"}'})
        wanted = {
            "binance/btcusdt": {"symbol": "BTCUSDT", "price": 0.5, "size": 100},
            "binance/ethusdt": {"symbol": "ETHUSDT", "price": 0.5, "size": 100},
            "kraken/BTC-USD": {"symbol": "BTC/USD", "price": 7, "size": 2},
            "now/oslo": {"city": "oslo", "celsius": 4}, "now/rome": {"city": "rome", "celsius": 4},
            "entity/light.kitchen": {"state": "on", "attributes": {}}, "entity/light.hall": {"state": "off", "attributes": {}},
        }
        found = await asyncio.gather(*[values(daemon, name, 1) for name in wanted])
        expect([[event] for event in wanted.values()] == found, f"the events are {found}")
        names = [name for message in asked["binance"] if message["method"] == "SUBSCRIBE" for name in message["params"]]
        expect(sorted(names) == ["btcusdt@trade", "ethusdt@trade"], f"binance is asked for {names}")
        expect([message["type"] for message in asked["home"]] == ["auth", "subscribe_events"], f"Home Assistant is asked {asked['home']}")
        refused = asyncio.create_task(values(daemon, "kraken/NO-USD", 1))
        while "the upstream refuses the value" not in daemon.log:
            await asyncio.sleep(0.02)
        refused.cancel()
        daemon.stop()


async def recipe_of_a_conversation_works(daemon):
    """the recipe for WebSockets that wait for answers gives the data of three servers that do"""
    [streams] = blocks("A WebSocket that waits for answers", "toml")

    async def prices(say, hear):
        expect((await hear())["type"] == "connection_init", "no connection_init")
        await say({"type": "connection_ack"})
        expect((await hear())["type"] == "subscribe", "no subscription")
        await say({"type": "ping"})
        expect(await hear() == {"type": "pong"}, "no pong")
        await say({"id": "1", "type": "next", "payload": {"data": {"price": {"eur": 7}}}})

    async def deribit(say, hear):
        expect((await hear())["id"] == 1 and (await hear())["id"] == 2, "no subscription")
        await say({"method": "heartbeat", "params": {"type": "heartbeat"}})
        await say({"method": "heartbeat", "params": {"type": "test_request"}})
        expect((await hear())["method"] == "public/test", "no test")
        await say({"method": "subscription", "params": {"data": [{"price": 7}]}})

    async def okx(say, hear):
        expect((await hear())["op"] == "subscribe", "no subscription")
        await say("pong")
        await say({"arg": {}, "data": [{"px": "7"}]})

    def service(talk):
        async def serve(socket):
            async def say(message):
                await socket.send(message if isinstance(message, str) else json.dumps(message))

            async def hear():
                return json.loads(await socket.recv())

            with contextlib.suppress(websockets.ConnectionClosed):
                await talk(say, hear)
                await socket.wait_closed()

        subprotocols = ["graphql-transport-ws"] if talk is prices else None
        return websockets.serve(serve, "127.0.0.1", 0, subprotocols=subprotocols)

    async with contextlib.AsyncExitStack() as servers:
        for talk, url in ((prices, "wss://api.example.org"), (deribit, "wss://www.deribit.com"), (okx, "wss://ws.okx.com:8443")):
            server = await servers.enter_async_context(service(talk))
            expect(url in streams, f"{url} is not in the recipe")
            streams = streams.replace(url, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        start(daemon, streams)
        for stream, event in (("prices", {"eur": 7}), ("deribit", {"price": 7}), ("okx", {"px": "7"})):
            expect(await values(daemon, stream, 1) == [event], f"{stream} has another event")
        daemon.stop()


CHECKS = [
    recipe_of_cookies_works, recipe_of_answers_works, recipe_of_home_assistant_works, recipe_of_prometheus_works,
    recipe_of_telegram_works, recipe_of_github_works, recipe_of_graphql_works, recipe_of_oauth2_works,
    recipe_of_nginx_works, recipe_of_an_exchange_works, recipe_of_names_works,
    recipe_of_a_conversation_works,
]
