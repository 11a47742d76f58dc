"""What a fleet serves in the tests: an upstream, subscribers and publishers, and what all of them must agree about."""

import asyncio
import collections
import datetime
import hashlib
import json
import struct

NUMBER_SECONDS = 0.05  # between events of `sse`


class Upstream:
    """`/sse`: numbers without a gap, from the one after Last-Event-ID. `/poll` and `/idle`: another value every 2 s."""

    def __init__(self, path, handovers):
        """- handovers: how often a host has begun to lead a stream until now."""
        self.path, self.handovers = path, handovers
        self.requests = collections.Counter()
        self.times = collections.defaultdict(list)  # by path: the time of each request, and the handovers before it
        self.open_streams = 0
        self.delay = 0.0  # the longest one of this process, because the machine is busy
        self.conditional = 0

    async def __aenter__(self):
        self.clock = asyncio.get_running_loop().time
        self.start = self.clock()
        self.tasks = {asyncio.create_task(self._measure())}
        self.server = await asyncio.start_unix_server(self._connect, self.path)
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for task in list(self.tasks):
            task.cancel()

    async def _measure(self):
        while True:
            start = self.clock()
            await asyncio.sleep(0.05)
            self.delay = max(self.delay, self.clock() - start - 0.05)

    @property
    def newest(self):
        return int((self.clock() - self.start) / NUMBER_SECONDS)

    async def _connect(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                fields = {}
                while (line := await reader.readline()).strip():
                    name, value = line.decode().split(":", 1)
                    fields[name.lower()] = value.strip()
                self.requests[path] += 1
                self.times[path].append((self.clock(), self.handovers(path[1:])))
                if path == "/sse":
                    return await self._stream(writer, int(fields.get("last-event-id", 0)))
                value = str(int((self.clock() - self.start) / 2))
                if fields.get("if-none-match") == f'"{value}"':
                    self.conditional += 1
                    writer.write(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n")
                else:
                    writer.write(
                        f'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: "{value}"\r\nContent-Length: '
                        f"{len(value)}\r\n\r\n{value}".encode())
                await writer.drain()
        except (OSError, asyncio.CancelledError):  # a server's task that is cancelled would be reported
            pass
        finally:
            writer.close()
            self.tasks.discard(asyncio.current_task())

    def excess(self, path, slot):
        """The first requests that are more than one for each slot and each handover; None if there are none.

        Where the slots begin is not known: a time of two and a half slots may touch four of them. (So this is exact for
        every time but for the one slot at its ends; half a slot is left to the delays of a busy machine, and twice the
        longest delay of this process, because those of the daemons are alike.)"""
        times, slack = self.times[path], 0.5 + 2 * self.delay / slot
        for i, (begin, before) in enumerate(times):
            for j in range(i + 1, len(times)):
                end, after = times[j]
                if j - i > int((end - begin) / slot + slack) + 1 + after - before:
                    return f"{j - i + 1} requests of {path} within {end - begin:.2f} s and {after - before} handovers"
        return None

    async def _stream(self, writer, last):
        self.open_streams += 1
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            while True:
                for number in range(last + 1, self.newest + 1):
                    writer.write(f"id: {number}\ndata: {number}\n\n".encode())
                    last = number
                await writer.drain()
                await asyncio.sleep(NUMBER_SECONDS)
        finally:
            self.open_streams -= 1


class Oracle:
    """The events of all streams, as the first subscriber has received them; all others must receive the same."""

    def __init__(self):
        self.events = collections.defaultdict(dict)  # by stream, by id: time, and the event or the hash of a large one
        self.newest = collections.defaultdict(int)
        self.violations = []
        self.numbers = 0  # the last one of `sse` in the order of ids
        self.published = collections.Counter()  # values of `notes` and `large`
        self.allows_gaps = False
        self.clock = asyncio.get_running_loop().time
        self.begin()

    def begin(self):
        """Begins to measure the longest time without a new event of `sse`."""
        self.time, self.longest = self.clock(), 0.0

    def pause(self):
        return max(self.longest, self.clock() - self.time)

    def receive(self, stream, identifier, time, data):
        """An event of any subscriber."""
        event = time, brief(data)
        known = self.events[stream].setdefault(identifier, event)
        if known != event:
            self.violations.append(f"{stream}: id {identifier} has {known} and {event}")
        if identifier <= self.newest[stream]:
            return
        self.newest[stream] = identifier
        if stream == "sse":
            if int(data) != self.numbers + 1:
                self.violations.append(f"sse: {data} after {self.numbers}")
            self.numbers = int(data)
            now = self.clock()
            self.time, self.longest = now, max(self.longest, now - self.time)
        elif stream in ("notes", "large"):
            self.published[brief(data)] += 1
            if self.published[brief(data)] > 1:
                self.violations.append(f"{stream}: {brief(data)} twice")


def brief(data):
    return data if len(data) < 100 else f"{data[:20]}… {hashlib.sha256(data.encode()).hexdigest()}"


def microseconds(text):
    """Of a time as in `ids=1`."""
    time = datetime.datetime.fromisoformat(text)
    return (time - datetime.datetime.fromtimestamp(0, datetime.timezone.utc)) // datetime.timedelta(microseconds=1)


class Subscriber:
    """Receives a stream from one host, or from one after another, each time after the last id."""

    def __init__(self, name, stream, host, fleet, oracle):
        self.name, self.stream, self.host, self.fleet, self.oracle = name, stream, host, fleet, oracle
        self.last = self.number = 0
        self.gaps = 0
        self.source, self.changes = host, 0  # the host of the last event, and how often that was another one
        self.refusals = collections.Counter()
        self.writer = None

    async def run(self):
        while True:
            try:
                await self._subscribe()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                if self.writer:
                    self.writer.close()
            await asyncio.sleep(0.1)

    def move(self, host):
        self.host = host
        if self.writer:
            self.writer.transport.abort()

    async def _subscribe(self):
        host = self.host
        reader, self.writer = await asyncio.open_unix_connection(self.fleet.socket(host), limit=1 << 24)
        begin = self.last or "replay"
        self.writer.write(f"GET /streams/{self.stream}?as=ndjson&ids=1&from={begin} HTTP/1.0\r\n\r\n".encode())
        status = await reader.readline()
        while (await reader.readline()).strip():
            pass
        if b" 200 " not in status:
            self.refusals[(await reader.read(4096)).decode(errors="replace")] += 1
            return
        while (line := await reader.readline()).endswith(b"\n"):
            event = json.loads(line)
            identifier = event["id"]
            if identifier <= self.last:
                self.oracle.violations.append(f"{self.name}: id {identifier} of {self.stream} after {self.last}")
            elif self.last and identifier != self.last + 1:
                self.gaps += 1
                if not self.oracle.allows_gaps:
                    self.oracle.violations.append(f"{self.name}: id {identifier} of {self.stream} after {self.last}: a gap")
            self.last = identifier
            self.changes += host != self.source
            self.source = host
            if self.stream == "sse":
                self.number = int(event["data"])
            self.oracle.receive(self.stream, identifier, microseconds(event["time"]), event["data"])


class CreditSubscriber:
    """Subscribes by RSocket, and asks for each event on its own."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    @classmethod
    async def to(cls, path, stream):
        subscriber = cls()
        subscriber.reader, subscriber.writer = await asyncio.open_unix_connection(path)
        kind = b"\x0atext/plain"
        subscriber._send(0, 0x01, 0, struct.pack(">HHII", 1, 0, 3_600_000, 7_200_000) + kind + kind)
        subscriber._send(1, 0x06, 0x100, struct.pack(">I", 1) + len(stream).to_bytes(3, "big") + stream.encode())
        return subscriber

    def _send(self, stream, kind, flags, fields):
        frame = struct.pack(">IH", stream, kind << 10 | flags) + fields
        self.writer.write(len(frame).to_bytes(3, "big") + frame)

    def request(self):
        self._send(1, 0x08, 0, struct.pack(">I", 1))

    async def receive(self):
        """Waits for an event."""
        while True:
            frame = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(3), "big"))
            stream, kind = struct.unpack_from(">IH", frame)
            if kind >> 10 == 0x0B:
                raise ConnectionError(frame[10:].decode(errors="replace"))
            if stream == 1 and kind >> 10 == 0x0A:
                return


class LinePublisher:
    """streamctl pub, with a line now and then, until it is finished."""

    def __init__(self, name, host, fleet, streamctl, is_named):
        self.name, self.host, self.count, self.pause = name, host, 0, 0.05
        self.status, self.is_paused = None, False
        self.command = [str(streamctl), "--socket", str(fleet.socket(host)), "pub", "notes"]
        if is_named:
            self.command += ["--as", name]

    async def run(self):
        self.process = await asyncio.create_subprocess_exec(*self.command, stdin=asyncio.subprocess.PIPE)
        try:
            while self.pause:
                if self.is_paused:
                    await asyncio.sleep(self.pause)
                    continue
                self.count += 1
                self.process.stdin.write(f"{self.name} {self.count}\n".encode())
                await self.process.stdin.drain()
                await asyncio.sleep(self.pause)
            self.process.stdin.close()
            self.status = await self.process.wait()
        finally:
            if self.process.returncode is None:
                self.process.kill()

    def values(self):
        return [f"{self.name} {number}" for number in range(1, self.count + 1)]


class Poster:
    """Publishes values over HTTP, each in a request of its own."""

    def __init__(self, name, host, fleet, stream="notes", pause=0.05, padding=0):
        self.name, self.host, self.fleet, self.stream, self.pause = name, host, fleet, stream, pause
        self.padding = "x" * padding
        self.count, self.confirmed, self.pending = 0, [], None
        self.is_finished = self.is_paused = False

    async def run(self):
        while not self.is_finished:
            if self.is_paused:
                self.pending = None
                await asyncio.sleep(self.pause)
                continue
            self.count += 1
            value = f"{self.name} {self.count} {self.padding}".strip()
            self.pending = brief(value)
            try:
                if await self._post(value):
                    self.confirmed.append(brief(value))
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)
            await asyncio.sleep(self.pause)

    async def _post(self, value):
        reader, writer = await asyncio.open_unix_connection(self.fleet.socket(self.host))
        try:
            writer.write(
                f"POST /streams/{self.stream} HTTP/1.0\r\nContent-Type: text/plain\r\nContent-Length: {len(value)}\r\n\r\n"
                f"{value}".encode())
            await writer.drain()
            status = await reader.readline()
            body = await reader.read()
            return b" 200 " in status and b'"accepted":1' in body
        finally:
            writer.close()
