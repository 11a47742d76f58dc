"""What a fleet serves in the tests: an upstream, subscribers and publishers, and what all of them must agree about."""

import asyncio
import collections
import datetime
import hashlib
import json
import socket
import struct
import typing

NUMBER_SECONDS = 0.05  # between events of `sse`


class Request(typing.NamedTuple):
    time: float
    host: int
    handovers: int  # before it
    is_late: bool  # another host leads the stream already

    def __str__(self):
        return f"host {self.host} at {self.time:.2f} s{' (late)' * self.is_late}"


class Upstream:
    """`/sse`: numbers without a gap, from the one after Last-Event-ID. `/poll` and `/idle`: another value every 2 s."""

    # A leader that is separated from the others does not know it before it has another value, at most 2 s and a slot after
    # the last one, and the brokers have not acknowledged that for 2 s. Another host leads 3 s after the last heartbeat, so
    # 2 s after the separation at the earliest: both fetch for 3 s. A leader that was stopped makes one request.
    KNOWING_SECONDS = 5
    LATE_COUNT = 3

    def __init__(self, path, host, claims):
        """- host: the host whose daemon has a process id.
        - claims: the host of each claim of a stream's shard until now, the last one at the end."""
        self.path, self.host, self.claims = path, host, claims
        self.requests = collections.Counter()
        self.times = collections.defaultdict(list)  # by path: each request
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
        peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        host = self.host(struct.unpack("3i", peer)[0])
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                fields = {}
                while (line := await reader.readline()).strip():
                    name, value = line.decode().split(":", 1)
                    fields[name.lower()] = value.strip()
                self.requests[path] += 1
                claims = self.claims(path[1:])
                self.times[path].append(
                    Request(self.clock() - self.start, host, len(claims), claims[-1:] not in ([], [host])))
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
        """The first requests that are more than one for each slot and handover; and those of a host after another one has
        begun to lead, if they are more than it can make before it knows. None if there are none."""
        ours = [request for request in self.times[path] if not request.is_late]
        late = [request for request in self.times[path] if request.is_late]
        for handovers, count in collections.Counter(request.handovers for request in late).items():
            if count > self.LATE_COUNT:
                these = [request for request in late if request.handovers == handovers]
                return f"{count} requests of {path} by hosts that do not lead any more: {', '.join(map(str, these))}"
        return self._excess(ours, path, slot) or self._excess(late, path, slot)

    def _excess(self, requests, path, slot):
        """Where the slots begin is not known: a time of two and a half slots may touch four of them. (So this is exact for
        every time but for the one slot at its ends; half a slot is left to the delays of a busy machine, and twice the
        longest delay of this process, because those of the daemons are alike.)"""
        slack = 0.5 + 2 * self.delay / slot
        for i, first in enumerate(requests):
            for j in range(i + 1, len(requests)):
                seconds, handovers = requests[j].time - first.time, requests[j].handovers - first.handovers
                if j - i > int(seconds / slot + slack) + 1 + handovers:
                    return (f"{j - i + 1} requests of {path} within {seconds:.2f} s and {handovers} handovers: "
                            f"{', '.join(map(str, requests[i:j + 1]))}")
        return None

    def fetches_while_cut(self, path, host, begin):
        """The requests of a host that was separated from the others at that time, since it must know it; None if there are
        none."""
        end = begin - self.start + self.KNOWING_SECONDS + 0.5 + 2 * self.delay
        these = [request for request in self.times[path] if request.host == host and request.time > end]
        return (f"{path} is fetched by a host that was separated at {begin - self.start:.2f} s: {', '.join(map(str, these))}"
                if these else None)

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
        self.gap_ends = {}  # of each stream: a gap after this id or a lower one is allowed
        self.clock = asyncio.get_running_loop().time
        self.begin()

    def begin(self):
        """Begins to measure the longest time without a new event of `sse`."""
        self.time, self.longest = self.clock(), 0.0

    def pause(self):
        return max(self.longest, self.clock() - self.time)

    def allow_gaps(self, end=None):
        """After ids up to one; without one, up to those until now. A stream with few events may have its gap much later than
        others."""
        self.gap_ends = {stream: end or newest for stream, newest in self.newest.items()}

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
                if self.last > self.oracle.gap_ends.get(self.stream, 0):
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
