"""Uses the whole interface of the package, for a type checker: it is never run."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

from typing_extensions import assert_type

import streamd
import streamd.aio

ERRORS: list[type[streamd.Error]] = [
    streamd.NotFound, streamd.AccessDenied, streamd.Lagged, streamd.Invalid, streamd.NotSupported, streamd.LimitExceeded,
    streamd.Canceled, streamd.SourceFailed, streamd.ConnectionLost, streamd.ProtocolError, streamd.Timeout,
]


def reason_of(error: streamd.Error) -> None:
    assert_type(error.reason, streamd.Reason | int | None)


def blocking(since: streamd.Since, where: streamd.Where, on_lag: streamd.OnLag, start: streamd.Start, data: streamd.Data) -> None:
    assert_type(streamd.__version__, str)
    with streamd.connect() as c:
        assert_type(c, streamd.Connection)
        assert_type(c.fileno(), int)
        with c.subscribe("s", start=start, on_lag=on_lag, where=where, marker=True, reconnect=False, credit=1) as s:
            assert_type(s, streamd.Subscription)
            iterator: Iterator[streamd.Event] = s
            for event in iterator:
                assert_type(event, streamd.Event)
            assert_type(s.next(1), streamd.Event)
            assert_type(s.next(timeout=0.5), streamd.Event)
            assert_type(s.batch(10, timeout=1), list[streamd.Event])
        c.subscribe("s", since=since).close()
        c.subscribe("s", last=10).close()
        with c.map("s", start="latest", on_lag=on_lag, reconnect=False, timeout=1) as m:
            assert_type(m, streamd.Mapped)
            mapped: Iterator[streamd.Event] = m
            assert_type(next(mapped), streamd.Event)
            assert_type(m.next(1), streamd.Event)
            assert_type(m.batch(10, timeout=1), list[streamd.Event])
            assert_type(m.generation, int)
        c.map("s", since=since).close()
        c.map("s", last=10).close()
        c.map("s", start="state")  # type: ignore[arg-type]
        c.publish("s", data, timeout=1)
        with c.publisher("s", name=b"name") as p:
            assert_type(p, streamd.Publisher)
            p.send(data)
            p.flush(1.5)
            assert_type(p.confirmed, int)
        c.publisher("s", name="name").close()
        c.make("s/x", timeout=1)
        c.forget("s/x")
        show(c.get("s", timeout=1))
    streamd.connect("/socket").close()
    streamd.connect("tcp:host:7878", token="secret").close()
    assert_type(streamd.read("s", last=10, since=since, where=where, address="/socket"), list[streamd.Event])


def show(event: streamd.Event) -> None:
    assert_type(event.id, int)
    assert_type(event.time_us, int)
    assert_type(event.data, bytes)
    assert_type(event.gap, int | None)
    assert_type(event.left_out, int)
    assert_type(event.is_marker, bool)
    assert_type(event.time, datetime)
    assert_type(event.text(), str)
    assert_type(event.json(), Any)
    {event: event == event}


def arguments(c: streamd.Connection, now: datetime) -> None:
    c.publish("s", "text")
    c.publish("s", b"bytes")
    c.publish("s", memoryview(b"bytes"))
    c.subscribe("s", since=7)
    c.subscribe("s", since=now)
    c.subscribe("s", since=timedelta(hours=1))
    c.subscribe("s", start="state", where={"/symbol": "AAPL"})
    c.subscribe("s", start="end")  # type: ignore[arg-type]
    c.subscribe("s", since="now")  # type: ignore[arg-type]
    c.publish("s", 1)  # type: ignore[arg-type]
    try:
        c.get("s")
    except streamd.Error as error:
        assert_type(error.code, int)


async def asynchronous(since: streamd.Since, data: streamd.Data) -> None:
    c = await streamd.aio.connect("/socket", token="secret")
    assert_type(c, streamd.AsyncConnection)
    await c.close()
    async with streamd.aio.connect() as d:
        assert_type(d, streamd.AsyncConnection)
        async with d.subscribe("s", start="new", on_lag="skip", where="{}", marker=True, reconnect=True, credit=10) as s:
            assert_type(s, streamd.AsyncSubscription)
            iterator: AsyncIterator[streamd.Event] = s
            async for event in iterator:
                assert_type(event, streamd.Event)
            assert_type(await s.batch(limit=10), list[streamd.Event])
        await d.subscribe("s", since=since).close()
        async with await d.map("s", start="new", on_lag="latest", reconnect=False) as m:
            assert_type(m, streamd.AsyncMapped)
            mapped: AsyncIterator[streamd.Event] = m
            async for event in mapped:
                assert_type(event, streamd.Event)
            assert_type(await m.batch(limit=10), list[streamd.Event])
            assert_type(m.generation, int)
        await (await d.map("s", since=since)).close()
        assert_type(await d.get("s"), streamd.Event)
        await d.publish("s", data)
        await d.make("s/x")
        await d.forget("s/x")
        async with d.publisher("s", name="name") as p:
            assert_type(p, streamd.AsyncPublisher)
            await p.send(data)
            await p.flush()
            assert_type(p.confirmed, int)
