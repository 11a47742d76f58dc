"""A daemon for all tests, and one of its own for those that kill it. The folder of streamd is in $STREAMD_BUILT."""

import os
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS), str(TESTS / "InteroperabilityTests")]

from daemon import Daemon
from environment import reserve_port

os.environ.pop("LD_PRELOAD", None)  # a sanitizer is for this process, not for the daemon

# `count` ends; nothing is published to `never`; `brief` drops events, `full` refuses them; `small` and `max_request` limit values;
# `private` and `guarded` admit another user, `private` also a token.
# `rooms/{room}` and `few/{x}` make streams for clients, of which the second one has one at a time. Nobody answers what `answers/{id}` asks.
TOKEN = "alice-0123456789"
STREAMS = """
listen = ["127.0.0.1:{port}"]
max_requests_per_connection = 16
max_request = "1MiB"

[streams.notes]
publish = true
replay = 3
keep = "disk"
buffer = {{ events = 100000 }}

[streams.brief]
publish = true
buffer = {{ events = 4 }}

[streams.full]
publish = true
overflow = "block"
block_timeout = "never"
buffer = {{ events = 4 }}

[streams.small]
publish = true
buffer = {{ events = 4, bytes = "64KiB" }}

[streams.pages]
publish = true
buffer = {{ events = 1000, bytes = "128MiB" }}

[streams.quotes]
publish = true
key = ".symbol"

[streams.count]
timer = {{ every = "1ms", times = 3 }}
replay = 3

[streams.never]
publish = true

[streams.private]
timer = {{ every = "10ms" }}
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
read = ["owner"]

[[tokens]]
name = "alice"
credential = "alice"
read = ["private"]
"""


class Server(Daemon):
    """Its streams stay over a kill."""

    def __init__(self):
        super().__init__(pathlib.Path(os.environ["STREAMD_BUILT"]) / "streamd", None)
        self.port = reserve_port()

    def begin(self):
        streams = STREAMS.format(port=self.port, stranger=os.geteuid() + 1)
        self.start(f'state = "{self.folder}"\n{streams}', credentials={"alice": TOKEN})

    def kill(self):
        self.process.kill()
        self.process.wait()


def serve():
    with Server() as server:
        server.begin()
        yield server
        server.stop()


shared_server = pytest.fixture(scope="session")(serve)
server = pytest.fixture(serve)


@pytest.fixture
def tcp(shared_server):
    """The address of the common daemon for clients that are no user of this machine."""
    return f"tcp:127.0.0.1:{shared_server.port}"


@pytest.fixture
def address(shared_server, monkeypatch):
    """The socket of the common daemon, which is the default one, too."""
    monkeypatch.setenv("STREAMD_SOCKET", shared_server.socket)
    return shared_server.socket
