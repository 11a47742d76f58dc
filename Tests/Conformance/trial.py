"""What a check gets: a daemon, a proxy before it, and a driver."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

from daemon import Daemon, Failure, expect, serves_maps
from environment import reserve_port
from proxy import Proxy

# No event takes long; a slow machine gets this.
PATIENCE_MILLISECONDS = 30_000
# The time in which a client that violates a rule would deliver an event.
QUIET_MILLISECONDS = 100
# No check waits for more than some attempts to connect.
CHECK_SECONDS = 60

# What a client that knows only the code REJECTED does not tell apart.
REJECTED = {"not-found", "access-denied", "not-supported", "limit"}

STREAMS = """
[streams.notes]
publish = true
replay = 3
keep = "disk"
buffer = {{ events = 100000 }}

[streams.volatile]
publish = true

[streams.brief]
publish = true
buffer = {{ events = 4 }}

[streams.lossless]
publish = true
overflow = "block"
block_timeout = "never"
buffer = {{ events = 4 }}

[streams.small]
publish = true
buffer = {{ events = 100, bytes = "64KiB" }}

[streams.pages]
publish = true
buffer = {{ events = 100, bytes = "128MiB" }}

[streams.quotes]
publish = true
key = ".symbol"
tombstone = ".delisted"
keep = "disk"

[streams.count]
timer = {{ every = "1ms", times = 5 }}
replay = 5

[streams.private]
timer = {{ every = "1s" }}
read = ["uid:{stranger}"]

[streams.guarded]
publish = true
write = ["uid:{stranger}"]

[streams."rooms/{{room}}"]
publish = true

[streams."few/{{x}}"]
publish = true
streams = 1

[streams."answers/{{id}}"]
http = {{ url = "http://127.0.0.1:1/", method = "POST", stream = "sse", body = "request" }}
write = ["*"]
read = ["owner"]
replay = "all"
overflow = "block"

[streams."unasked/{{id}}"]
http = {{ url = "http://127.0.0.1:1/", method = "POST", stream = "sse", body = "request" }}
write = ["uid:{stranger}"]
read = ["owner"]

[streams."closed/{{x}}"]
publish = true
read = ["uid:{stranger}"]
write = ["uid:{stranger}"]
"""
# If the daemon has maps. `shared` has room for few events, and `roomy` for many.
MAPPED_STREAMS = """
[streams.shared]
publish = true
map = true
replay = 3
buffer = {{ events = 64 }}

[streams.roomy]
publish = true
map = true
buffer = {{ events = 1000 }}

[streams.mapped-count]
timer = {{ every = "1ms", times = 5 }}
map = true
replay = 5

[streams.mapped-private]
timer = {{ every = "1s" }}
map = true
read = ["uid:{stranger}"]
"""
SERVER = """
max_requests_per_connection = 8
max_request = "15MiB"
"""

# The words of a subscription to every stored event.
ALL = {"from_": "ago", "since": 3_600_000_000}

CHECKS = []


def check(*needs):
    """Adds a check, whose documentation is its name; drivers without one of these capabilities skip it."""

    def add(function):
        function.needs = needs
        CHECKS.append(function)
        return function

    return add


def numbers(count, first=1):
    return [str(number) for number in range(first, first + count)]


def must_be(events, values):
    """The events have these data and ids that rise by 1, and none was missed."""
    found = [event.data.decode() for event in events]
    expect(found == list(values), f"expected {values}, not {found}")
    ids = [event.id for event in events]
    expect(ids == list(range(ids[0], ids[0] + len(ids))), f"the ids are {ids}")
    expect(all(event.gap == 0 for event in events), f"the gaps are {[event.gap for event in events]}")


def page(size):
    """Bytes of which each part has another content."""
    return b"".join(b"%08x" % number for number in range(size // 8))


def quote(symbol, **members):
    return json.dumps({"symbol": symbol, **members})


class Server(Daemon):
    """Its streams with `keep` stay over a kill."""

    def begin(self, server="", more="", credentials=None):
        """`server` and `more`: more keys of that table, and further tables."""
        (self.folder / "state").mkdir(exist_ok=True)
        streams = STREAMS + (MAPPED_STREAMS if serves_maps(self.program) else "") + more
        self.start(
            streams.format(stranger=os.geteuid() + 1), f'{SERVER}\n{server}\nstate = "{self.folder}/state"\n', credentials)

    def begin_with_token(self, token):
        """Serves tokens, of which `token` alone may read the stream `secret`. Returns the address over TCP."""
        port = reserve_port()
        self.begin(f'listen = ["127.0.0.1:{port}"]', """
[streams.secret]
publish = true
read = ["uid:{stranger}"]
[[tokens]]
name = "reader"
credential = "reader"
read = ["secret"]
""", {"reader": token})
        return f"tcp:127.0.0.1:{port}"

    def reload_without(self, stream):
        """Removes a stream from the configuration."""
        self.reload(f"[streams.{stream}]", "[streams.another]")

    def reload(self, former, new):
        """Replaces a text in the configuration, at once: an earlier reload may be reading it."""
        configuration, changed = self.folder / "streamd.toml", self.folder / "changed.toml"
        changed.write_text(configuration.read_text().replace(former, new))
        changed.rename(configuration)
        self.process.send_signal(signal.SIGHUP)

    def wait_for_reload(self, count):
        """Returns after so many reloads since the start."""
        end = time.monotonic() + PATIENCE_MILLISECONDS / 1000
        while self.log.count("configuration reloaded") < count:
            expect(time.monotonic() < end, "the daemon did not reload its configuration")
            time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def publish(self, stream, *values):
        """Returns once the values, bytes or texts, are in the stream."""
        connection = http.client.HTTPConnection("streamd")
        with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.connect(self.socket)
            for value in values:
                connection.request("POST", f"/streams/{stream}", value if isinstance(value, bytes) else value.encode())
                reply = connection.getresponse()
                expect(reply.status // 100 == 2, f"the daemon did not accept a value: {reply.status} {reply.read()}")
                reply.read()


class Reply:
    def __init__(self, line):
        self.line = line
        self.verb, *words = line.split(" ")
        pairs = (word.partition("=") for word in words)
        self.words = {key: urllib.parse.unquote_to_bytes(value) for key, _, value in pairs}

    def text(self, key):
        expect(key in self.words, f"`{self.line[:200]}` has no word {key}")
        return self.words[key].decode()

    def number(self, key):
        text = self.text(key)
        expect(text.isdecimal(), f"{key} of `{self.line[:200]}` is no number")
        return int(text)

    @property
    def id(self):
        return self.number("id")

    @property
    def left_out(self):
        return self.number("left_out")

    @property
    def data(self):
        return self.words["data"]

    @property
    def gap(self):
        """The number of missed events, or "unknown"."""
        return "unknown" if self.text("gap") == "unknown" else self.number("gap")

    def must_be(self, verb):
        expect(self.verb == verb, f"expected {verb}, not `{self.line[:200]}`")
        return self

    def must_fail(self, kind, sentence=""):
        """`end` or `error` of a kind, with a sentence that contains this one."""
        expect(self.verb in ("end", "error"), f"expected {kind}, not `{self.line[:200]}`")
        found = self.text("kind")
        expect(found == kind or found == "rejected" and kind in REJECTED, f"expected {kind}, not `{self.line[:200]}`")
        if sentence:
            expect(sentence in self.text("sentence"), f"expected `{sentence}`, not `{self.text('sentence')}`")


class Driver:
    """A process that obeys README.md."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.hang = threading.Timer(CHECK_SECONDS, self.process.kill)
        self.hang.start()
        greeting = self.receive()
        expect(greeting.verb == "conformance", f"the driver greets with `{greeting.line}`")
        version, *self.capabilities = greeting.line.split(" ")[1:]
        expect(version == "1", f"the driver obeys version {version} of the contract")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hang.cancel()
        self.process.kill()
        self.process.communicate()

    def send(self, verb, **words):
        encoded = (f"{key}={urllib.parse.quote(value, safe='')}" for key, value in words.items())
        with contextlib.suppress(BrokenPipeError):  # receive() says why
            self.process.stdin.write(" ".join([verb, *encoded]).encode() + b"\n")
            self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise Failure(f"the driver ended with {self.process.wait()}\n{self.process.stderr.read().decode(errors='replace')}")
        return Reply(line[:-1].decode())

    def ask(self, verb, **words):
        self.send(verb, **words)
        return self.receive()

    def quit(self):
        self.ask("quit").must_be("ok")
        expect(self.process.wait(CHECK_SECONDS) == 0, f"the driver ended with {self.process.returncode}")


class Reader:
    """A subscription of a driver."""

    def __init__(self, driver, number):
        self.driver, self.number = driver, number

    def request(self, count):
        self.driver.ask("request", subscription=self.number, count=str(count)).must_be("ok")

    def begin_next(self):
        """finish_next() has the reply: in between, the daemon can do something."""
        self.driver.send("next", subscription=self.number, wait=str(PATIENCE_MILLISECONDS))

    def finish_next(self):
        return self.driver.receive()

    def next(self, wait=PATIENCE_MILLISECONDS):
        return self.driver.ask("next", subscription=self.number, wait=str(wait))

    def event(self):
        return self.next().must_be("event")

    def marker(self):
        return self.next().must_be("marker")

    def take(self, count):
        return [self.event() for _ in range(count)]

    def must_be_quiet(self):
        self.next(QUIET_MILLISECONDS).must_be("nothing")

    def must_end(self, kind, sentence=""):
        self.next().must_fail(kind, sentence)

    def close(self):
        self.driver.ask("close", subscription=self.number).must_be("ok")


class Sender:
    """A publisher of a driver."""

    def __init__(self, driver, number):
        self.driver, self.number = driver, number

    def publish(self, *values):
        for value in values:
            self.driver.ask("publish", publisher=self.number, data=value).must_be("ok")

    def finish(self):
        self.driver.ask("finish", publisher=self.number, wait=str(PATIENCE_MILLISECONDS)).must_be("ok")

    def must_fail(self, kind, sentence=""):
        self.driver.ask("finish", publisher=self.number, wait=str(PATIENCE_MILLISECONDS)).must_fail(kind, sentence)

    def confirmed(self):
        return self.driver.ask("confirmed", publisher=self.number).must_be("number").number("number")

    def close(self):
        self.driver.ask("close", publisher=self.number).must_be("ok")


class Trial:
    """For use in a `with`. `missing`: the capabilities that the driver needs and does not have, and the daemon's; without one there is a
    daemon."""

    def __init__(self, program, command, needs):
        self.command = command
        self.daemon = Server(program, None)
        self.needs, self.handles = needs, 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.driver = stack.enter_context(Driver(self.command))
            self.missing = [f"driver has no {word}" for word in self.needs if word not in self.driver.capabilities]
            if "map" in self.needs and not serves_maps(self.daemon.program):
                self.missing.append("daemon has no maps")
            if not self.missing:
                stack.enter_context(self.daemon)
                self.daemon.begin()
                self.proxy = Proxy(str(self.daemon.folder / "proxy.sock"), self.daemon.socket)
                stack.callback(self.proxy.close)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def another_process(self):
        """From now on commands are for another driver."""
        self.driver.quit()
        self.driver = self.stack.enter_context(Driver(self.command))

    def handle(self):
        self.handles += 1
        return str(self.handles)

    def connect(self, address=None, **words):
        number = self.handle()
        self.driver.ask("connect", connection=number, address=address or self.proxy.path, **words).must_be("ok")
        return number

    def subscribe(self, stream, connection=None, window=16, **options):
        """`from_`: where to begin. A window of 0: only request() grants credit."""
        number = self.handle()
        connection = connection or self.connect()
        words = {key.rstrip("_"): "yes" if value is True else str(value) for key, value in options.items()}
        self.driver.ask("subscribe", subscription=number, connection=connection, stream=stream, window=str(window), **words).must_be("ok")
        return Reader(self.driver, number)

    def begin_map(self, stream, connection=None, **options):
        """Returns the reply, and the reader."""
        number = self.handle()
        words = {key.rstrip("_"): "yes" if value is True else str(value) for key, value in options.items()}
        reply = self.driver.ask("map", subscription=number, connection=connection or self.connect(), stream=stream, **words)
        return reply, Reader(self.driver, number)

    def map(self, stream, connection=None, **options):
        reply, reader = self.begin_map(stream, connection, **options)
        reply.must_be("ok")
        return reader

    def settle(self, connection):
        """Returns once the daemon has handled all requests of the connection: a client may send the first of these before them."""
        for _ in range(2):
            self.get("$streams", connection).must_be("event")

    def stored(self, stream, count):
        """Events from the oldest stored one on, by a connection of their own."""
        return self.subscribe(stream, self.connect(self.daemon.socket), **ALL).take(count)

    def publisher(self, stream, connection=None, **words):
        number = self.handle()
        connection = connection or self.connect()
        self.driver.ask("publisher", publisher=number, connection=connection, stream=stream, **words).must_be("ok")
        return Sender(self.driver, number)

    def give(self, verb, stream, connection):
        """Makes or forgets a stream of a template."""
        return self.driver.ask(verb, connection=connection, stream=stream, wait=str(PATIENCE_MILLISECONDS))

    def request(self, stream, data, connection):
        """Asks the upstream of a template."""
        return self.driver.ask("ask", connection=connection, stream=stream, data=data, wait=str(PATIENCE_MILLISECONDS))

    def begin_get(self, stream, connection, wait=PATIENCE_MILLISECONDS):
        self.driver.send("get", connection=connection, stream=stream, wait=str(wait))

    def get(self, stream, connection, wait=PATIENCE_MILLISECONDS):
        self.begin_get(stream, connection, wait)
        return self.driver.receive()
