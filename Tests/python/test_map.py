"""Mapped streams, of a daemon that Tests/libstreamd/mapserver.c plays."""

import asyncio
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import streamd
import streamd.aio
from test_waits import signals

PROJECT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = PROJECT / "Sources" / "libstreamd"


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    name = tmp_path_factory.mktemp("mapserver") / "mapserver"
    sources = [PROJECT / "Tests" / "libstreamd" / "mapserver.c", PROJECT / "Tests" / "libstreamd" / "writer.c", LIBRARY / "buffer.c", LIBRARY / "frame.c"]
    subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", f"-I{LIBRARY}", *sources, "-o", name], check=True)
    return name


class Server:
    def __init__(self, program, socket):
        self.socket, self.timers, self.lock = socket, [], threading.Lock()
        self.process = subprocess.Popen([program, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ok\n"

    def do(self, line):
        with self.lock:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "ok\n"

    def soon(self, line, after=0.2):
        self.timers.append(threading.Timer(after, self.do, [line]))
        self.timers[-1].start()


@pytest.fixture
def server(program, tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMD_SOCKET", str(tmp_path / "socket"))
    server = Server(program, str(tmp_path / "socket"))
    yield server
    for timer in server.timers:
        timer.join()
    server.process.kill()
    server.process.communicate()


@pytest.fixture
def c(server):
    with streamd.connect() as connection:
        yield connection


def texts(events):
    return [event.text() for event in events]


def expected(first, last):
    return [f"event {number}" for number in range(first, last + 1)]


def test_events_are_iterated_and_read_in_batches(server, c):
    server.do("add 2000")
    with c.map("quotes") as m:
        assert isinstance(m, streamd.Mapped) and not isinstance(m, streamd.Subscription)
        assert next(m) == streamd.Event(1, 1000001, b"event 1")
        found = texts(m.batch(10))
        while len(found) < 1999:
            found += texts(m.batch())
        assert found == expected(2, 2000)
        server.soon("add 1")
        assert m.next(30).text() == "event 2001"
        assert m.generation == 1
        with pytest.raises(streamd.Timeout):
            m.next(0.05)
        server.soon("replace 3")
        server.soon("add 2", after=0.4)
        event = m.next(30)
        assert (event.id, event.gap, m.generation) == (2005, 3, 2)
        server.soon("end")
        assert texts(m) == ["event 2006"]
        with pytest.raises(EOFError):
            m.next()
        assert m.batch() == []
    with pytest.raises(ValueError, match="closed"):
        next(m)
    with pytest.raises(ValueError, match="closed"):
        m.generation


def test_starts_and_refusals(server, c):
    server.do("add 10")
    assert c.map("quotes", since=4).next(30).id == 5
    assert c.map("quotes", start="latest").next(30).id == 10
    assert c.map("quotes", last=2).next(30).id == 9
    with pytest.raises(streamd.Timeout):
        c.map("quotes", start="new").next(0)
    with pytest.raises(streamd.NotFound, match="nothing"):
        c.map("nothing")
    with pytest.raises(streamd.NotSupported, match="not mapped"):
        c.map("plain")
    with pytest.raises(streamd.Invalid):
        c.map("quotes", start="state")
    with pytest.raises(TypeError):
        c.map("quotes", start="new", since=1)


def test_a_first_map_is_asked_for_again_while_the_daemon_has_too_many(server, c):
    server.do("add 1")
    server.do("refuse 3")
    assert c.map("quotes").next(30).id == 1


def test_an_overtaken_reader_is_told_or_ends(server, c):
    server.do("add 1")
    skipping, failing = c.map("quotes"), c.map("quotes", on_lag="fail")
    server.do("fill 200000 8")
    event = skipping.next(30)
    assert event.gap == 200_001 - (1 << 17) and event.id == event.gap + 1
    with pytest.raises(streamd.Lagged, match="events lost"):
        failing.next(30)


def test_waits_end_with_a_keyboard_interrupt(server, c):
    server.do("add 1")
    m = c.map("quotes")
    assert m.next(30).id == 1
    for wait in (m.next, m.batch, lambda: next(m)):
        with signals(), pytest.raises(KeyboardInterrupt):
            wait()
    server.do("add 1")
    assert m.next(30).id == 2
    server.process.send_signal(signal.SIGSTOP)
    try:
        with signals(), pytest.raises(KeyboardInterrupt):
            c.map("quotes")
        with pytest.raises(streamd.Timeout):
            c.map("quotes", timeout=0.05)
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_lost_connection_is_restored_or_ends_the_map(server):
    with streamd.connect() as c, streamd.connect() as other:
        server.do("add 1")
        m, fragile = c.map("quotes"), other.map("quotes", reconnect=False)
        server.do("cut")
        server.do("add 1")
        assert texts(m.next(30) for _ in range(2)) == expected(1, 2)
        with pytest.raises(streamd.ConnectionLost):
            list(fragile)
        time.sleep(1.2)  # so that the next call notices it
        server.do("add 1")
        server.do("replace 0")
        server.do("add 1")
        assert texts(m.next(30) for _ in range(2)) == expected(3, 4)


def test_one_thread_at_a_time_uses_a_map(server, c):
    m = c.map("quotes")
    thread = threading.Thread(target=m.next, args=[30])
    thread.start()
    deadline = time.monotonic() + 30
    with pytest.raises(RuntimeError, match="another thread"):
        while time.monotonic() < deadline:
            m.generation  # it waits for nothing, so the thread is not refused
    server.do("add 1")
    thread.join()


def test_asyncio_waits_in_a_thread(server):
    async def body():
        async with streamd.aio.connect() as c:
            server.do("add 1000")
            m = await c.map("quotes")
            assert texts([event async for event, _ in limited(m, 500)]) == expected(1, 500)
            found = []
            while len(found) < 500:
                found += texts(await m.batch())
            assert found == expected(501, 1000)
            for number in range(1001, 1006):  # a cancelled wait loses no event, and the loop is free meanwhile
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(m.__anext__(), 0.05)
                server.do("add 1")
                assert (await m.__anext__()).id == number
            with pytest.raises(streamd.NotFound):
                await c.map("nothing")
            other = await c.map("quotes", start="new")
            waiting = asyncio.ensure_future(other.batch())
            await asyncio.sleep(0.05)
            assert m.generation == 1
            await other.close()
            with pytest.raises(ValueError, match="closed"):
                await waiting
            server.soon("end")
            async with m:
                assert [event async for event in m] == []
            await m.close()
            third = await c.map("quotes")
        with pytest.raises(ValueError, match="closed"):
            await third.batch()

    asyncio.run(asyncio.wait_for(body(), 60))


async def limited(events, count):
    async for event in events:
        yield event, None
        count -= 1
        if not count:
            return


def test_a_cancelled_request_for_a_map_leaves_no_thread(server):
    async def body():
        async with streamd.aio.connect() as c:
            server.process.send_signal(signal.SIGSTOP)
            try:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(c.map("quotes"), 0.3)
            finally:
                server.process.send_signal(signal.SIGCONT)

    asyncio.run(body())
    deadline = time.monotonic() + 30
    while any(thread.name.startswith("streamd-map") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
