"""streamd as deploy/install puts it into a folder, and a daemon that runs from there."""

import contextlib
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[2]

# The longest wait is for the start of a program; this is for a slow machine.
SECONDS = 120

CONFIGURATION = """
[server]
socket = "{socket}"
[streams.clock]
timer.every = "1s"
[streams."home/door"]
publish = true
"""


class Failure(Exception):
    """A failed check, as one sentence."""


def expect(condition, sentence):
    if not condition:
        raise Failure(sentence)


def expect_equal(found, wanted, what):
    """Both are sets."""
    wrong = [f"{name} is missing" for name in sorted(wanted - found)]
    wrong += [f"{name} is there" for name in sorted(found - wanted)]
    expect(not wrong, f"{what}: " + ", ".join(wrong))


def said(*command, environment=(), **options) -> str:
    """The output and errors of a command, however it ends."""
    return subprocess.run(
        [*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=SECONDS, env={**os.environ, "LC_ALL": "C.UTF-8", **dict(environment)}, **options).stdout


class Installation:
    """For use in a `with`, which removes everything at its end."""

    def __init__(self, built: pathlib.Path):
        self.built = built

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="streamd-")
        self.folder = pathlib.Path(self.temporary.name)
        self.prefix = self.folder / "usr"
        try:
            self.deploy("install", "--built", self.built)
        except BaseException:
            self.temporary.cleanup()
            raise
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    def deploy(self, script, *arguments):
        done = subprocess.run(
            [PROJECT / "deploy" / script, *arguments],
            env={**os.environ, "DESTDIR": str(self.folder), "PREFIX": "/usr"}, capture_output=True, text=True,
            timeout=SECONDS)
        expect(done.returncode == 0, f"deploy/{script} ended with {done.returncode}: {done.stderr}")

    def files(self):
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def program(self, name):
        return self.prefix / "bin" / name

    @contextlib.contextmanager
    def daemon(self, **environment):
        """A running daemon; yields its socket."""
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamd-")))
            (folder / "streamd.toml").write_text(CONFIGURATION.format(socket=folder / "socket"))
            manager = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            manager.bind(str(folder / "notify"))
            log = stack.enter_context(open(folder / "log", "wb"))
            alone = {
                name: value for name, value in os.environ.items()
                if not name.startswith(("LISTEN_", "WATCHDOG_", "JOURNAL_STREAM"))}
            process = subprocess.Popen(
                [self.program("streamd"), "--config", folder / "streamd.toml"], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**alone, "NOTIFY_SOCKET": str(folder / "notify"), **environment})
            stack.callback(end, process)
            ended = os.pidfd_open(process.pid)
            stack.callback(os.close, ended)
            while True:
                ready, _, _ = select.select([manager, ended], [], [], SECONDS)
                expect(manager in ready, "streamd did not start: " + (folder / "log").read_text())
                if b"READY=1" in manager.recv(4096).splitlines():
                    break
            yield folder / "socket"


def end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
