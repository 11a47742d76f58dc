"""asyncio: the same streams; what cancellation keeps; tasks that share a connection."""

import asyncio
import functools

import pytest

import streamd
import streamd.aio


def with_connection(check):
    """Runs a check with a connection in a loop of its own."""

    @functools.wraps(check)
    def run(address):
        async def body():
            async with streamd.aio.connect() as c:
                await asyncio.wait_for(check(c), 60)

        asyncio.run(body())

    del run.__wrapped__  # pytest takes the fixtures of `run`
    return run


async def newest_id(c):
    await c.publish("notes", "before")
    return (await c.get("notes")).id


async def send_all(c, values, name=None):
    async with c.publisher("notes", name=name) as p:
        for value in values:
            await p.send(value)


@with_connection
async def test_events_are_published_read_and_iterated(c):
    since = await newest_id(c)
    await send_all(c, map(str, range(10_000)))
    texts = []
    async with c.subscribe("notes", since=since) as s:
        async for event in s:
            texts.append(event.text())
            if len(texts) == 5000:
                break
        while len(texts) < 10_000:
            texts += [event.text() for event in await s.batch(100)]
    assert texts == list(map(str, range(10_000)))


@with_connection
async def test_a_stream_that_completes_ends_its_iterator(c):
    assert len([event async for event in c.subscribe("count")]) == 3
    s = c.subscribe("count")
    while batch := await s.batch():
        assert len(batch) <= 3
    with pytest.raises(StopAsyncIteration):
        await s.__anext__()


@with_connection
async def test_errors_are_those_of_the_blocking_side(c):
    with pytest.raises(streamd.NotFound, match="nothing"):
        await c.get("nothing")
    with pytest.raises(streamd.AccessDenied):
        await c.publish("guarded", "x")
    with pytest.raises(streamd.NotFound):
        await c.subscribe("nothing").__anext__()
    with pytest.raises(streamd.Invalid):
        c.subscribe("notes", credit=0)
    with pytest.raises(streamd.ConnectionLost):
        await streamd.aio.connect("/nowhere/socket")


@with_connection
async def test_a_cancelled_wait_loses_no_event(c):
    since = await newest_id(c)
    other = await streamd.aio.connect()
    writer = asyncio.create_task(send_all(other, map(str, range(300)), name="slow"))
    s = c.subscribe("notes", since=since, credit=3)
    texts, cancelled = [], 0
    while len(texts) < 300:
        waits = [lambda: s.__anext__(), lambda: s.batch(2)]
        task = asyncio.create_task(waits[len(texts) % 2]())
        for _ in range(cancelled % 4):
            await asyncio.sleep(0)
        task.cancel()
        try:
            events = await task
            texts += [event.text() for event in (events if isinstance(events, list) else [events])]
        except asyncio.CancelledError:
            cancelled += 1
            await asyncio.sleep(0.001 if cancelled % 2 else 0)
    await writer
    await other.close()
    assert texts == list(map(str, range(300))) and cancelled


@with_connection
async def test_tasks_share_a_connection(c):
    since = await newest_id(c)

    async def count():
        async with c.subscribe("notes", since=since) as s:
            return [(await s.__anext__()).text() for _ in range(500)]

    readers = [asyncio.create_task(count()) for _ in range(4)]
    waiting = asyncio.create_task(c.get("never"))
    for number in range(500):
        await c.publish("notes", str(number))
        if number % 100 == 0:
            assert (await c.get("notes")).text() == str(number)
    assert await asyncio.gather(*readers) == [list(map(str, range(500)))] * 4
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@with_connection
async def test_a_wait_for_events_ends_while_others_flush(c):
    s = c.subscribe("notes", start="new")
    reader = asyncio.create_task(s.batch())
    await asyncio.sleep(0)
    async with c.publisher("notes") as p:
        for number in range(200):
            await p.send(str(number))
            await p.flush()
        assert p.confirmed == 200
    assert (await reader)[0].text() == "0"


@with_connection
async def test_named_publishers_continue(c):
    await send_all(c, "abc", name="async")
    async with c.publisher("notes", name="async") as p:
        await p.flush()
        assert p.confirmed == 3


@with_connection
async def test_waits_can_be_bounded(c):
    s = c.subscribe("never")
    for wait in (s.__anext__, s.batch, lambda: c.get("never")):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.05)
    await c.publish("notes", "usable")
    assert (await c.get("notes")).text() == "usable"


@with_connection
async def test_leaving_with_an_exception_does_not_flush(c):
    with pytest.raises(KeyError):
        async with c.publisher("notes"):
            raise KeyError


@with_connection
async def test_closing_ends_waits(c):
    other = await streamd.aio.connect()
    s, t = c.subscribe("never"), other.subscribe("never")
    waits = [asyncio.create_task(s.__anext__()), asyncio.create_task(t.batch()), asyncio.create_task(other.get("never"))]
    await asyncio.sleep(0.05)
    await s.close()
    await other.close()
    await other.close()
    for result in await asyncio.gather(*waits, return_exceptions=True):
        assert type(result) is ValueError and "closed" in str(result)
    with pytest.raises(ValueError):
        await other.publish("notes", "x")
    with pytest.raises(ValueError):
        async with s:
            pass


def test_a_subscription_continues_after_a_kill(server):
    async def check():
        c, other = await streamd.aio.connect(server.socket), await streamd.aio.connect(server.socket)
        s = c.subscribe("notes", start="new")
        await c.get("count")  # after it, `s` has begun
        await other.publish("notes", "before")
        assert (await s.__anext__()).text() == "before"
        await asyncio.to_thread(server.kill)
        with pytest.raises(streamd.ConnectionLost):
            await other.get("notes")
        await asyncio.to_thread(server.begin)
        third = await streamd.aio.connect(server.socket)
        await third.publish("notes", "after")
        assert (await s.__anext__()).text() == "after"
        for each in (c, other, third):
            await each.close()

    asyncio.run(check())
