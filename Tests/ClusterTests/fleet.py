"""Three brokers and three daemons, and the links between them, which can be cut or lose answers."""

import asyncio
import json
import os
import pathlib
import random
import re
import signal
import subprocess

from environment import reserve_port
from nats import Client

# Within this time everything happens, also on a machine that is busy with other work.
PATIENCE = 180
STOP_SECONDS = 60
SHARDS = 2

BROKER = """
server_name: broker-{number}
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{folder}/broker-{number}", max_file_store: 2GB{sync} }}
cluster {{
  name: test
  listen: 127.0.0.1:{cluster_port}
  advertise: "127.0.0.1:1"  # brokers use the links of their configuration alone
  no_advertise: true
  routes: [{routes}]
}}
"""

# `sse` has numbers without a gap, `poll` another value every 2 s; clients publish to `notes` and `large`; `idle` has no
# subscribers.
DAEMON = """
[server]
socket = "{folder}/{number}.sock"
state = "{folder}/daemon-{number}"

[cluster]
name = "test"
nats = [{links}]
shards = {shards}
shard_bytes = "512MiB"

[streams.sse]
http = {{ url = "http://upstream/sse", stream = "sse", unix_socket = "{folder}/upstream.sock" }}
retry = {{ first = "200ms", max = "1s" }}

[streams.poll]
http = {{ url = "http://upstream/poll", every = "1s", unix_socket = "{folder}/upstream.sock" }}
retry = {{ first = "1s", max = "1s" }}

[streams.idle]
http = {{ url = "http://upstream/idle", every = "500ms", unix_socket = "{folder}/upstream.sock" }}
linger = "0s"

[streams.notes]
publish = true

[streams.large]
publish = true
buffer = {{ bytes = "256MiB" }}
"""

COMMON = """
type = "text/plain"
share = "fleet"
keep = "disk"
replay = 1000
"""


class Failure(Exception):
    """A failed check, as one sentence."""


class Process:
    """A broker or a daemon. It may be killed, stopped and started again."""

    def __init__(self, command, log):
        self.command, self.log, self.process, self.is_stopped = command, log, None, False
        self.environment = {}

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def start(self):
        assert not self.is_running
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | self.environment)

    def kill(self):
        if self.is_running:
            self.process.kill()
        if self.process:
            self.process.wait()
        self.is_stopped = False

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        self.is_stopped = True

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False

    async def end(self):
        """As the service manager."""
        self.process.terminate()
        for _ in range(STOP_SECONDS * 20):
            if self.process.poll() is not None:
                if self.process.returncode != 0:
                    raise Failure(f"{self.log.name}: ended with status {self.process.returncode}")
                return
            await asyncio.sleep(0.05)
        raise Failure(f"{self.log.name}: not ended {STOP_SECONDS} s after SIGTERM")


class Gate:
    """Lets claims of a shard pass at the same time, once those of two hosts wait.
    - prepare: called before."""

    def __init__(self, stream, prepare=None):
        self.prepare = prepare
        self.subject = f"streamd.test.log.{shard(stream)}.claim".encode()
        self.hosts = []
        self.opened = asyncio.Event()

    async def passes(self, host, subject):
        if subject != self.subject:
            return
        self.hosts.append(host)
        try:
            if len(set(self.hosts)) == 2:
                if self.prepare:
                    await self.prepare()
                self.opened.set()
            await self.opened.wait()
        finally:
            self.hosts.remove(host)


class WeakFence:
    """Replaces the condition of appends to a log, on the way from one host to a broker: they are stored if the *subject's*
    last entry is the expected one, which the broker that leads the log compares before it proposes the entry to the
    others, as for `update` of a key-value bucket.

    An append after an entry that is not stored yet is left as it is: the subject's last entry does not say what that is."""

    HEADER = b"Nats-Expected-Last-Sequence"

    def __init__(self, port):
        self.port, self.client = port, None

    async def replaces(self, words, body):
        """- words, body: of HPUB. Returns them for the broker."""
        size = int(words[-2])
        found = re.search(self.HEADER + rb": *(\d+)", body[:size])
        if not found or len(words) != 5:
            return words, body
        expected = int(found[1])
        self.client = self.client or await Client.to(self.port)
        shard = words[1].split(b".")[3].decode()
        try:
            former, last = await asyncio.gather(*(
                self.client.request(f"$JS.API.STREAM.MSG.GET.streamd-test-{shard}", request)
                for request in (b'{"seq":%d}' % expected, b'{"last_by_subj":"%s"}' % words[1])))
        except (OSError, asyncio.TimeoutError):
            await self.close()
            return words, body
        former, last = (json.loads(answer or b"{}").get("message", {}).get("seq", 0) for _, answer in (former, last))
        if former != expected or last > expected:
            return words, body
        header = body[:size].replace(found[0], b"Nats-Expected-Last-Subject-Sequence: %d" % last)
        return [*words[:3], b"%d" % len(header), b"%d" % (len(header) + len(body) - 2 - size)], header + body[size:]

    async def close(self):
        client, self.client = self.client, None
        if client:
            await client.close()


class Link:
    """A port that is connected to another one. What a cut link has received waits, as packets do.
    - fleet, host: of a connection between a host and a broker; of others None."""

    def __init__(self, target, fleet=None, host=None):
        self.target, self.fleet, self.host = target, fleet, host
        # Cut, or open; in both directions, there, and back.
        self.is_open, self.is_open_there, self.is_open_back = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for event in (self.is_open, self.is_open_there, self.is_open_back):
            event.set()
        self.loss = 0.0  # the part of the answers that are lost
        self.budget = None  # bytes that still pass to the target; None: all
        self.is_exhausted = asyncio.Event()
        self.tasks = set()

    async def listen(self):
        self.server = await asyncio.start_server(self._connect, "127.0.0.1", 0, limit=1 << 16)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _connect(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        writers = [writer]
        try:
            await self.is_open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target, limit=1 << 16)
            writers.append(far_writer)
            if self.fleet:
                ways = [self._pass_commands(reader, far_writer), self._pass_messages(far_reader, writer)]
            else:
                ways = [
                    self._pass(reader, far_writer, self.is_open_there), self._pass(far_reader, writer, self.is_open_back)]
            directions = [asyncio.create_task(way) for way in ways]
            self.tasks.update(directions)
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            self.tasks.difference_update(directions)
        except (OSError, asyncio.CancelledError):  # a server's task that is cancelled would be reported
            pass
        finally:
            for each in writers:
                each.close()
            self.tasks.discard(asyncio.current_task())

    async def _pass(self, reader, writer, is_open):
        while data := await reader.read(1 << 16):
            await self.is_open.wait()
            await is_open.wait()
            writer.write(data)
            await writer.drain()

    async def _pass_commands(self, reader, writer):
        """Passes on whole commands of a host to a broker, up to the budget."""
        fence = WeakFence(self.target) if self.fleet.has_weak_fence else None
        try:
            return await self._pass_fenced(reader, writer, fence)
        finally:
            if fence:
                await fence.close()

    async def _pass_fenced(self, reader, writer, fence):
        while line := await reader.readline():
            words = line.split()
            data = line
            if words and words[0] in (b"PUB", b"HPUB"):
                body = await reader.readexactly(int(words[-1]) + 2)
                if fence and words[0] == b"HPUB":
                    words, body = await fence.replaces(words, body)
                if self.fleet.gate:
                    await self.fleet.gate.passes(self.host, words[1])
                data = b" ".join(words) + b"\r\n" + body
            await self.is_open.wait()
            if self.budget is not None:
                self.budget -= len(data)
                if self.budget < 0:
                    self.is_exhausted.set()
                    return await reader.read(-1)  # until the end
            writer.write(data)
            await writer.drain()

    async def _pass_messages(self, reader, writer):
        """Passes on whole messages of a broker to a host, but for answers that are lost."""
        while line := await reader.readline():
            words = line.split()
            data = line
            if words and words[0] in (b"MSG", b"HMSG"):
                body = await reader.readexactly(int(words[-1]) + 2)
                if b".answer." in words[1] and random.random() < self.loss:
                    continue
                data += body
            await self.is_open.wait()
            writer.write(data)
            await writer.drain()

    def close(self):
        self.server.close()
        for task in list(self.tasks):
            task.cancel()


class Fleet:
    """All processes, with numbers from 0. Ends them, and closes the links, when it is left."""

    def __init__(self, folder, streamd, broker, has_weak_fence=False):
        """- broker: nats-server."""
        self.folder, self.streamd, self.broker, self.has_weak_fence = folder, streamd, broker, has_weak_fence
        self.gate = None

    async def __aenter__(self):
        numbers = range(3)
        self.ports = [reserve_port() for _ in numbers]
        cluster_ports = [reserve_port() for _ in numbers]
        self.routes = {(a, b): Link(cluster_ports[b]) for a in numbers for b in numbers if a != b}
        self.links = {(host, b): Link(self.ports[b], self, host) for host in numbers for b in numbers}
        for link in [*self.routes.values(), *self.links.values()]:
            await link.listen()
        self.brokers, self.daemons = [], []
        for number in numbers:
            routes = ", ".join(f'"nats-route://127.0.0.1:{self.routes[number, b].port}"' for b in numbers if b != number)
            links = ", ".join(f'"nats://127.0.0.1:{self.links[number, b].port}"' for b in numbers)
            file = self.folder / f"broker-{number}.conf"
            file.write_text(BROKER.format(
                number=number, port=self.ports[number], cluster_port=cluster_ports[number], folder=self.folder,
                routes=routes, sync="" if self.has_weak_fence else ", sync_interval: always"))  # 2.9 does not have it
            self.brokers.append(Process([str(self.broker), "--config", str(file)], self.folder / f"broker-{number}.log"))
            file = self.folder / f"daemon-{number}.toml"
            text = DAEMON.format(number=number, folder=self.folder, links=links, shards=SHARDS)
            file.write_text(re.sub(r"^(\[streams\..*)$", lambda found: found[1] + COMMON.rstrip(), text, flags=re.M))
            (self.folder / f"daemon-{number}").mkdir()
            self.daemons.append(Process([str(self.streamd), "--config", str(file)], self.folder / f"daemon-{number}.log"))
        return self

    async def __aexit__(self, *_):
        for process in self.daemons + self.brokers:
            process.kill()
        for link in [*self.routes.values(), *self.links.values()]:
            link.close()

    def socket(self, host):
        return self.folder / f"{host}.sock"

    def host(self, process):
        """The host whose daemon has this process id; None for one that does not run any more."""
        return next((host for host, daemon in enumerate(self.daemons) if daemon.pid == process), None)

    async def state(self, host, stream):
        """What the daemon of a host says of a stream."""
        curl = await asyncio.create_subprocess_exec(
            "curl", "--silent", "--show-error", "--max-time", "5", "--unix-socket", self.socket(host), "http://streamd/streams",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = await curl.communicate()
        try:
            return next(each for each in json.loads(output) if each["name"] == stream)
        except (ValueError, TypeError, KeyError, StopIteration):
            return output.decode(errors="replace")

    def log(self, host):
        return self.daemons[host].log.read_text(errors="replace") if self.daemons[host].log.exists() else ""

    def terms(self):
        """All claims that succeeded: shard, term, host; the last one of a shard with the highest term is its leader."""
        return [
            (int(shard), int(term), host) for host in range(3)
            for shard, term in re.findall(r"leads shard (\d+) of the fleet, term (\d+)", self.log(host))]

    def leader(self, stream):
        """The host that leads the shard of a stream by the newest claim in this epoch."""
        terms = [(term, host) for number, term, host in self.terms() if number == shard(stream)]
        if not terms:
            raise Failure(f"no host leads the shard of {stream}")
        return max(terms)[1]

    async def leading_broker(self, stream):
        information = await self.information(f"streamd-test-{shard(stream)}")
        return int(information["cluster"]["leader"].rsplit("-", 1)[1])

    async def information(self, log):
        """What the broker that leads a log says of it, once there is one."""
        async def ask():
            for port in self.ports:
                try:
                    async with await Client.to(port) as client:
                        information = await client.information(log)
                    if information["cluster"]["leader"]:
                        return information
                except (OSError, ValueError, KeyError, asyncio.TimeoutError):
                    continue
            return None
        return await until(f"a broker leads {log}", ask)

    async def entries(self, stream):
        """What the log of a stream's shard has."""
        log = f"streamd-test-{shard(stream)}"
        information = await self.information(log)
        async with await Client.to(self.ports[int(information["cluster"]["leader"].rsplit("-", 1)[1])]) as client:
            return await client.entries(log, information["state"]["first_seq"], information["state"]["last_seq"])

    async def lead_log(self, log, broker):
        """Lets the brokers elect leaders of a log until it is this one."""
        async def is_leader():
            if (await self.information(log))["cluster"]["leader"] == f"broker-{broker}":
                return True
            async with await Client.to(self.ports[broker]) as client:
                await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{log}")
            await asyncio.sleep(0.5)
            return False
        await until(f"broker {broker} leads {log}", is_leader)

    def partition(self, host, is_cut):
        """Separates a host, with the broker of its number, from the others; or ends that."""
        for (a, b), link in [*self.routes.items(), *self.links.items()]:
            if (a == host) != (b == host):
                link.is_open.clear() if is_cut else link.is_open.set()

    def mute(self, broker, is_muted):
        """Lets nothing that a broker sends arrive at the others, which it still hears; or ends that."""
        for (a, b), link in self.routes.items():
            for way in [link.is_open_there] * (a == broker) + [link.is_open_back] * (b == broker):
                way.clear() if is_muted else way.set()

    def limit(self, host, budget):
        """Lets a host send so many bytes to a broker, then nothing; without a budget everything.
        Returns the links."""
        links = [link for (number, _), link in self.links.items() if number == host]
        for link in links:
            link.budget = budget
            link.is_exhausted.clear()
        return links

    def lose_answers(self, part):
        for link in self.links.values():
            link.loss = part


def shard(stream):
    """As FleetMachine.shard(of:)."""
    mask, value = (1 << 64) - 1, 0xcbf29ce484222325
    for byte in stream.encode():
        value = (value ^ byte) * 0x100000001b3 & mask
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9 & mask
    value = (value ^ value >> 27) * 0x94d049bb133111eb & mask
    return (value ^ value >> 31) % SHARDS


async def until(what, condition, seconds=lambda: PATIENCE):
    """Waits for what a function, or a coroutine, returns as true."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds()
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result is not None and result is not False:
            return result
        if clock() > end:
            raise Failure(f"not within {seconds()} s: {what}")
        await asyncio.sleep(0.05)
