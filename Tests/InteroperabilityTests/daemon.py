"""A streamd for one check, and the web server that it polls."""

import contextlib
import http.server
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import threading

# A start takes milliseconds, and so does a stop; a slow machine gets this.
START_SECONDS = 60
STOP_SECONDS = 60

MAX_REQUESTS = 8

# A name that is longer than a fragment, so that a client fragments it.
LONG_NAME = "long-" + "name-" * 40

# `count` ends, and stores all its events; `ticks` does not end; `brief` stores few; `private` admits another user;
# `page` has one event of many fragments; `never` has none; clients publish to `notes`, and to `work`, which drops nothing
# and stores few; `guarded` admits publishers of another user; `quotes` has keys.
CONFIGURATION = """
[server]
socket = "{socket}"
max_requests_per_connection = {max_requests}
{server}

[streams.count]
timer = {{ every = "1ms", times = 5 }}
replay = 5

[streams.ticks]
timer = {{ every = "5ms" }}
replay = 3

[streams.brief]
timer = {{ every = "1ms" }}
buffer = {{ events = 4 }}
replay = 1

[streams.private]
timer = {{ every = "1s" }}
read = ["uid:{stranger}"]

[streams.page]
http = {{ url = "{web}/page", every = "1h" }}
type = "application/octet-stream"
replay = 1

[streams.never]
http = {{ url = "{web}/missing", every = "1h" }}

[streams.notes]
publish = true
replay = 10000

[streams.work]
publish = true
overflow = "block"
block_timeout = "never"
buffer = {{ events = 4 }}
replay = 4

[streams.guarded]
publish = {{}}
write = ["uid:{stranger}"]

[streams.quotes]
publish = true
key = ".symbol"
tombstone = ".delisted"

[streams.{long_name}]
timer = {{ every = "5ms" }}
"""


class Failure(Exception):
    """A failed check, as one sentence."""


def expect(condition, sentence):
    if not condition:
        raise Failure(sentence)


def serves_maps(program: pathlib.Path) -> bool:
    """Whether the daemon has mapped streams."""
    streams = '[server]\nsocket = "/streamd.sock"\n[streams.notes]\npublish = true\nmap = true\n'
    return subprocess.run([program, "--check", "-"], input=streams.encode(), capture_output=True, check=False).returncode == 0


class Web:
    """On a free port of the loopback interface: `PAGE` at /page, and nothing elsewhere."""

    PAGE = bytes(index * 31 % 251 for index in range(300_000))

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle(self):
            with contextlib.suppress(ConnectionError):  # a daemon that stops hangs up
                super().handle()

        def do_GET(self):
            body = Web.PAGE if self.path == "/page" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Daemon:
    """For use in a `with`, which removes everything at its end."""

    def __init__(self, program: pathlib.Path, web: Web):
        self.program = program
        self.web = web
        self.process = None

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="streamd-")
        self.folder = pathlib.Path(self.temporary.name)
        self.socket = str(self.folder / "streamd.sock")
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.temporary.cleanup()

    @property
    def log(self) -> str:
        """Its log so far."""
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self, streams=None, server="", credentials=None):
        """Returns once it serves, which it reports as to systemd: the streams above, or these, with more keys of the table
        `server`. `credentials`: texts by their names."""
        configuration = self.folder / "streamd.toml"
        configuration.write_text(f'[server]\nsocket = "{self.socket}"\n{server}\n{streams}' if streams else CONFIGURATION.format(
            socket=self.socket, max_requests=MAX_REQUESTS, stranger=os.geteuid() + 1, web=self.web.url,
            long_name=LONG_NAME, server=server))
        for name, text in (credentials or {}).items():
            (self.folder / name).write_text(text)
        # Not that of the machine, which may have streams of these names.
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        (self.folder / "notify").unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, open(self.folder / "log", "wb") as log:
            (self.folder / "notify").unlink(missing_ok=True)
            manager.bind(str(self.folder / "notify"))
            # Only with the variables that it needs, whatever the environment of the tests.
            environment = {
                name: value for name, value in os.environ.items()
                if not name.startswith(("LISTEN_", "WATCHDOG_", "JOURNAL_STREAM"))}
            self.process = subprocess.Popen(
                [self.program, "--config", configuration], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**environment, "NOTIFY_SOCKET": str(self.folder / "notify"), "CREDENTIALS_DIRECTORY": str(self.folder),
                     "STATE_DIRECTORY": str(state)})
            ended = os.pidfd_open(self.process.pid)
            try:
                while True:
                    ready, _, _ = select.select([manager, ended], [], [], START_SECONDS)
                    expect(manager in ready, "streamd did not start")
                    if b"READY=1" in manager.recv(4096).splitlines():
                        return
            finally:
                os.close(ended)

    def ask_to_stop(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        """Stops it, if it runs, and checks its exit code."""
        if self.process.poll() is None:
            self.ask_to_stop()
        status = self.process.wait(STOP_SECONDS)
        expect(status == 0, f"streamd ended with {status}")
