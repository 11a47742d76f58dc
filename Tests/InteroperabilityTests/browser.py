"""A headless Chromium, driven by the DevTools protocol over pipes, and a TCP port for a daemon's Unix socket."""

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile

from daemon import Failure, expect

# A page loads within a second; a slow machine gets this.
WAIT_SECONDS = 45


@contextlib.asynccontextmanager
async def served_on_tcp(daemon):
    """Yields the URL of a port at which a browser reaches the daemon's socket."""

    async def copy(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader, writer):
        try:
            upstream = await asyncio.open_unix_connection(daemon.socket)
        except OSError:  # the daemon is stopped
            writer.close()
            return
        with contextlib.suppress(asyncio.CancelledError):  # the check is over
            await asyncio.gather(copy(reader, upstream[1]), copy(upstream[0], writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


class Tab:
    """A page of a browser."""

    def __init__(self, browser, session=None):
        self.browser, self.session = browser, session

    async def send(self, method, **parameters):
        return await self.browser.call(self.session, method, parameters)

    async def evaluate(self, expression):
        """Returns the value of an expression in the page."""
        result = await self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        expect("exceptionDetails" not in result, f"{expression[:80]}: {result.get('exceptionDetails')}")
        return result["result"].get("value")

    async def until(self, expression, what):
        """Waits until an expression is true."""
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while not (value := await self.evaluate_unless_left(expression)):
            expect(asyncio.get_running_loop().time() < deadline, f"it never came true that {what}")
            await asyncio.sleep(0.1)
        return value

    async def evaluate_unless_left(self, expression):
        """As `evaluate`; nothing while another page takes the place of this one."""
        try:
            return await self.evaluate(expression)
        except Failure as failure:
            if "navigated or closed" not in str(failure):
                raise

    async def press(self, key, code=0, text=None):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    async def show(self):
        """Makes it the visible tab of its window: nothing is drawn in the background."""
        await self.send("Page.bringToFront")


class Browser(Tab):
    """The first tab. For use in an `async with`, after which nothing is left of it."""

    def __init__(self):
        super().__init__(self)

    async def __aenter__(self):
        program = shutil.which("chromium")
        expect(program, "no chromium; install the package chromium")
        self.folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        (commands, self.commands), (self.answers, answers) = os.pipe(), os.pipe()
        inner = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]

        def give():  # Chromium reads commands from 3 and writes answers to 4
            os.dup2(inner[0], 3)
            os.dup2(inner[1], 4)

        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            [program, "--headless=new", *sandbox, "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=give, pass_fds=(3, 4), start_new_session=True, env={**os.environ, "HOME": self.folder.name})
        for end in (commands, answers, *inner):
            os.close(end)
        self.number, self.pending, self.errors = 0, {}, []
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=64 << 20)
        self.transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), os.fdopen(self.answers, "rb"))
        self.task = asyncio.create_task(self.receive())
        self.session = (await self.open()).session
        await self.show()
        return self

    async def open(self, in_new_window=False):
        """Returns another tab."""
        call = self.browser.call
        target = (await call(None, "Target.createTarget", {"url": "about:blank", "newWindow": in_new_window}))["targetId"]
        attached = await call(None, "Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = Tab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            await tab.send(f"{domain}.enable")
        return tab

    async def __aexit__(self, *_):
        self.task.cancel()
        self.transport.close()
        os.close(self.commands)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its own helpers included
        self.process.wait()
        self.folder.cleanup()

    async def receive(self):
        while True:
            message = json.loads((await self.reader.readuntil(b"\0"))[:-1])
            if future := self.pending.pop(message.get("id"), None):
                future.set_result(message)
            elif message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"])
            elif message.get("method") == "Runtime.consoleAPICalled" and message["params"]["type"] == "error":
                self.errors.append(message["params"]["args"])
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"])  # violations of the policy as well

    async def call(self, session, method, parameters):
        self.number += 1
        future = self.pending[self.number] = asyncio.get_running_loop().create_future()
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        await asyncio.to_thread(self.write, json.dumps(message).encode() + b"\0")  # may wait for the pipe
        answer = await asyncio.wait_for(future, WAIT_SECONDS)
        expect("error" not in answer, f"{method}: {answer.get('error')}")
        return answer["result"]

    def write(self, data):
        while data:
            data = data[os.write(self.commands, data):]
