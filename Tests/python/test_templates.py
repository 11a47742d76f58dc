"""Streams whose names have parameters: made and ended by commands, and made by those who use them."""

import asyncio
import socket

import pytest

import streamd
import streamd.aio


@pytest.fixture
def c(address):
    with streamd.connect() as connection:
        yield connection


def names(c):
    return {row["name"] for row in c.get("$streams").json()}


def test_a_stream_exists_from_make_to_forget(c):
    c.make("rooms/kitchen")
    c.make("rooms/kitchen", timeout=30)
    s = c.subscribe("rooms/kitchen", marker=True)
    assert s.next(30).is_marker
    c.forget("rooms/kitchen")
    with pytest.raises(streamd.Canceled) as ended:
        s.next(30)
    assert ended.value.reason == streamd.Reason.REMOVED
    with pytest.raises(streamd.NotFound):
        c.forget("rooms/kitchen", timeout=30)


def test_a_pattern_has_the_events_of_all_streams_with_their_names(c):
    c.publish("rooms/den", "1")
    with c.subscribe("rooms/*", start="new", marker=True) as s:
        marker = s.next(30)
        assert marker.is_marker and marker.stream is None and marker.position > 0
        c.publish("rooms/den", "2")
        c.publish("rooms/loft", "3")
        events = [s.next(30) for _ in range(2)]
        assert [(event.stream, event.text()) for event in events] == [("rooms/den", "2"), ("rooms/loft", "3")]
    with c.subscribe("rooms/*", since=events[0].position) as s:
        assert "3" in [s.next(30).text() for _ in range(2)]


def test_publishing_and_subscribing_make_a_stream(c):
    c.publish("rooms/hall", "x")
    assert c.get("rooms/hall", timeout=30).text() == "x"
    with c.subscribe("rooms/cellar", marker=True) as s:
        assert s.next(30).is_marker
    for name in ("rooms/hall", "rooms/cellar"):
        c.forget(name)


@pytest.mark.parametrize("action, kind, reason", [
    (lambda c: c.make("other/x"), streamd.NotFound, streamd.Reason.NO_STREAM),
    (lambda c: c.make("rooms/.."), streamd.NotFound, streamd.Reason.NO_STREAM),
    (lambda c: c.make('rooms/"\\\n'), streamd.NotFound, streamd.Reason.NO_STREAM),
    (lambda c: c.make("notes"), streamd.NotSupported, streamd.Reason.NO_EFFECT),
    (lambda c: c.forget("notes"), streamd.NotSupported, streamd.Reason.NO_EFFECT),
    (lambda c: c.make(""), streamd.Invalid, None), (lambda c: c.forget("n" * 256), streamd.Invalid, None),
])
def test_a_refused_command_has_its_reason(c, action, kind, reason):
    with pytest.raises(kind) as caught:
        action(c)
    assert type(caught.value) is kind and caught.value.reason == reason
    c.make("rooms/usable")
    c.forget("rooms/usable")


def test_streams_in_use_are_a_limit(c):
    with c.subscribe("few/a", marker=True) as s:
        assert s.next(30).is_marker
        with pytest.raises(streamd.LimitExceeded) as caught:
            c.make("few/b")
        assert caught.value.reason == streamd.Reason.TOO_MANY_STREAMS
    c.make("few/b")  # `few/a` is unused now
    c.forget("few/b")


def test_a_request_makes_the_stream_of_its_answer(c, address):
    name = c.request("answers", "hello")
    assert name.startswith("answers/") and len(name) == 34
    assert c.request("answers/a", b"hello") == c.request("answers/b", bytearray(b"hello")).replace("b", "a") == "answers/a"
    with pytest.raises(streamd.SourceFailed, match="could not connect"):
        next(iter(c.subscribe(name)))
    for stream, data, kind, reason in [
        ("answers/a", "other", streamd.NotSupported, streamd.Reason.OTHER_REQUEST),
        ("rooms", "hello", streamd.NotFound, streamd.Reason.NO_STREAM), ("answers", "", streamd.Invalid, None),
    ]:
        with pytest.raises(kind) as caught:
            c.request(stream, data)
        assert caught.value.reason == reason

    async def check():
        async with streamd.aio.connect() as one:
            assert await one.request("answers/c", "hello") == "answers/c"

    asyncio.run(check())


def test_a_command_without_a_reply_has_a_timeout(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with streamd.connect(str(tmp_path / "socket")) as c:
            for command in (c.make, c.forget):
                for timeout in (0, -1, 0.01):
                    with pytest.raises(streamd.Timeout):
                        command("s", timeout=timeout)


def test_a_closed_connection_gives_no_command(address):
    c = streamd.connect()
    c.close()
    with pytest.raises(ValueError, match="closed"):
        c.make("rooms/x")


def test_tasks_make_streams_on_one_connection(address):
    async def check():
        async with streamd.aio.connect() as c:
            await asyncio.gather(*(c.make(f"rooms/{number}") for number in range(10)))
            reader = asyncio.create_task(c.subscribe("rooms/3").__anext__())
            await c.publish("rooms/3", "x")
            assert (await reader).text() == "x"
            assert await asyncio.gather(*(c.forget(f"rooms/{number}") for number in range(10))) == [None] * 10
            for command in (c.make("other/x"), c.forget("rooms/3")):
                with pytest.raises(streamd.NotFound):
                    await command

    asyncio.run(asyncio.wait_for(check(), 60))


def test_a_cancelled_command_leaves_the_connection_usable(tmp_path, address):
    async def check():
        async with streamd.aio.connect() as c:
            for number in range(20):
                making = asyncio.create_task(c.make(f"rooms/{number}"))
                await asyncio.sleep(0.001 if number % 2 else 0)
                making.cancel()
            await asyncio.gather(*(c.make(f"rooms/{number}") for number in range(4)))
            await asyncio.gather(*(c.forget(f"rooms/{number}") for number in range(4)))
        listener = await asyncio.start_unix_server(lambda reader, writer: None, str(tmp_path / "socket"))
        async with listener, streamd.aio.connect(str(tmp_path / "socket")) as silent:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(silent.make("s"), 0.05)
            making = asyncio.create_task(silent.make("s"))
            await asyncio.sleep(0)
            await silent.close()
            with pytest.raises(ValueError, match="closed"):
                await making

    asyncio.run(check())
