"""Streams, events, errors and limits, without asyncio."""

import array
import asyncio
import contextlib
import errno
import importlib.metadata
import json
import os
import pickle
import socket
import sys
import threading
from datetime import datetime, timedelta, timezone

import pytest

import streamd
import streamd.aio
from conftest import TOKEN


@pytest.fixture
def c(address):
    with streamd.connect() as connection:
        yield connection


def newest_id(c, stream):
    """The id of a new event, to subscribe after it."""
    c.publish(stream, "before")
    return c.get(stream).id


def publish(c, stream, values):
    with c.publisher(stream) as p:
        for value in values:
            p.send(value)


def take(subscription, count):
    return [subscription.next(30) for _ in range(count)]


# --- events ---


def test_an_event_has_the_published_bytes_and_a_time(c):
    before = datetime.now(timezone.utc)
    c.publish("notes", '{"text":"ä"}')
    event = c.get("notes")
    assert event.data == b'{"text":"\xc3\xa4"}' and event.text() == '{"text":"ä"}' and event.json() == {"text": "ä"}
    assert before - timedelta(seconds=1) < event.time < datetime.now(timezone.utc) + timedelta(seconds=1)
    assert event.time.utcoffset() == timedelta(0) and event.time.microsecond == event.time_us % 1_000_000
    assert (event.gap, event.left_out, event.is_marker) == (0, 0, False)


def test_events_are_immutable_values():
    event = streamd.Event(7, 1_700_000_000_123_456, b"data", None, 3, True)
    assert event == streamd.Event(7, 1_700_000_000_123_456, b"data", None, 3, True) and event is not None
    assert all(event != other for other in (streamd.Event(7, 1_700_000_000_123_456, b"data", 0, 3, True), streamd.Event(8, 0, b""), 7))
    assert len({event, pickle.loads(pickle.dumps(event))}) == 1 and eval(repr(event), {"Event": streamd.Event}) == event
    assert event.gap is None and event.time == datetime(2023, 11, 14, 22, 13, 20, 123456, timezone.utc)
    for name in ("id", "data", "gap", "other"):
        with pytest.raises(AttributeError):
            setattr(event, name, 1)
    with pytest.raises(TypeError):
        event < event
    with pytest.raises(TypeError):
        type("Subclass", (streamd.Event,), {})
    with pytest.raises(UnicodeDecodeError):
        streamd.Event(1, 1, b"\xff").text()


@pytest.mark.parametrize("data", [b"bytes", "text", bytearray(b"array"), memoryview(b"a-b-c")[::2], array.array("H", [1, 2])])
def test_values_are_text_or_buffers(c, data):
    c.publish("notes", data)
    assert c.get("notes").data == (data.encode() if isinstance(data, str) else bytes(data))


def test_an_empty_value_is_no_event(c):
    before = newest_id(c, "notes")
    c.publish("notes", "")
    publish(c, "notes", ["", "next", ""])
    assert next(c.subscribe("notes", since=before)).data == c.get("notes").data == b"next"


@pytest.mark.parametrize("data", [1, [1, 2], None, {"a": 1}])
def test_nothing_else_is_a_value(c, data):
    with pytest.raises(TypeError, match="^a value is bytes or str$"):
        c.publish("notes", data)


def test_the_version_is_that_of_the_package():
    assert importlib.metadata.version("streamd") == streamd.__version__


# --- tokens ---


def test_a_token_gives_access_over_tcp(tcp):
    with streamd.connect(tcp, token=TOKEN) as c:
        assert next(c.subscribe("private")) and c.get("private")
    assert streamd.read("private", last=2, address=tcp, token=TOKEN)
    with streamd.connect(tcp) as c, pytest.raises(streamd.AccessDenied, match="may not read"):
        c.get("private")
    with streamd.connect(tcp, token="no-such-token-0123") as c, pytest.raises(streamd.AccessDenied, match="the token is not valid"):
        c.get("private")
    for token in ("", "a" * 1025):
        with pytest.raises(streamd.Invalid, match="a token has"):
            streamd.connect(tcp, token=token)


def test_a_token_gives_access_to_tasks(tcp):
    async def get():
        async with streamd.aio.connect(tcp, token=TOKEN) as c:
            return await c.get("private")

    assert asyncio.run(get())


# --- subscriptions ---


def test_events_come_in_order_and_once_for_any_credit(c):
    for credit in (1, 2, 3, 1024):
        since = newest_id(c, "notes")
        publish(c, "notes", map(str, range(3000)))
        with c.subscribe("notes", since=since, credit=credit) as s:
            events = []
            while len(events) < 3000:
                events += s.batch(700, 30) if len(events) % 2 else [next(s)]
        assert [event.text() for event in events] == list(map(str, range(3000)))
        assert all(a.id < b.id for a, b in zip(events, events[1:]))


def test_a_stream_that_completes_ends_its_iterator(c):
    assert len(list(c.subscribe("count"))) == 3
    s = c.subscribe("count")
    assert len(take(s, 3)) == 3
    for _ in range(2):
        with pytest.raises(EOFError):
            s.next()
        assert s.batch() == [] and list(s) == []


def test_subscriptions_begin_where_they_say(c):
    first = newest_id(c, "notes")
    publish(c, "notes", "abcde")

    def texts(count, **options):
        with c.subscribe("notes", **options) as s:
            return "".join(event.text() for event in take(s, count))

    assert texts(3) == "cde" and texts(1, start="latest") == "e" and texts(5, since=first) == "abcde"
    c.publish("notes", "f")
    assert texts(1, since=c.get("notes").time) == "f" and texts(6, since=timedelta(hours=1)) != "" and texts(3) == "def"
    assert texts(1, since=datetime.now(timezone.utc) - timedelta(days=100_000)) != ""
    assert texts(2, last=2) == "ef" and texts(1, last=2**64 - 1) != ""
    with c.subscribe("notes", start="new") as s:
        with pytest.raises(streamd.Timeout):
            s.next(0)
        c.publish("notes", "g")
        assert s.next(30).text() == "g"
    with pytest.raises(ValueError):
        c.subscribe("notes", since=datetime.now())
    with pytest.raises(TypeError):
        c.subscribe("notes", start="new", since=first)
    with pytest.raises(TypeError):
        c.subscribe("notes", since=first, last=1)
    with pytest.raises(streamd.Invalid):
        c.subscribe("notes", last=0)
    with pytest.raises(TypeError):
        c.subscribe("notes", since="yesterday")


def test_a_state_has_the_newest_event_of_each_key(c):
    publish(c, "quotes", [json.dumps({"symbol": symbol, "price": price}) for price in (1, 2) for symbol in "AB"])
    with c.subscribe("quotes", start="state", marker=True) as s:
        a, b, marker = take(s, 3)
    assert [a.json(), b.json()] == [{"symbol": "A", "price": 2}, {"symbol": "B", "price": 2}]
    assert marker.is_marker and marker.data == b""


def test_a_filter_leaves_events_out(c):
    since = newest_id(c, "notes")
    publish(c, "notes", [json.dumps({"n": n}) for n in range(10)])
    for where in ({"/n": {"ge": 7}}, '{"/n":{"ge":7}}'):
        with c.subscribe("notes", since=since, where=where) as s:
            events = take(s, 3)
        assert [event.json()["n"] for event in events] == [7, 8, 9] and sum(event.left_out for event in events) == 7


def test_lost_events_are_a_gap(c):
    since = newest_id(c, "brief")
    with c.subscribe("brief", since=since, credit=1) as s, c.subscribe("brief", since=since, credit=1, on_lag="fail") as failing:
        c.publish("brief", "0")
        assert s.next(30).gap == failing.next(30).gap == 0
        publish(c, "brief", map(str, range(1, 11)))
        events = take(s, 4)
        assert events[-1].text() == "10" and sum(event.gap + 1 for event in events) == 10
        with pytest.raises(streamd.Lagged, match="lost") as caught:
            take(failing, 9)
        assert caught.value.code == errno.ENOBUFS


def test_read_returns_what_is_stored(c):
    first = newest_id(c, "notes")
    publish(c, "notes", [json.dumps({"n": n}) for n in range(10)])

    def numbers(**options):
        return [event.json()["n"] for event in streamd.read("notes", **options)]

    assert numbers(last=3) == [7, 8, 9] and numbers(since=first) == list(range(10)) and numbers(last=0) == []
    assert numbers(since=first, where={"/n": {"lt": 2}}) == [0, 1] and numbers(last=1, where={"/n": {"lt": 2}}) == [1]
    assert streamd.read("notes")[-1].json() == {"n": 9} and streamd.read("never") == []
    assert len(streamd.read("count")) == 3
    with pytest.raises(streamd.Invalid):
        streamd.read("notes", last=-1)


def test_get_waits_for_the_first_event_and_reads_past_untaken_ones(c):
    waiting = c.subscribe("pages", since=0, credit=1024)
    publish(c, "pages", [b"x" * 900_000] * 80)  # more than libstreamd reads ahead
    c.publish("notes", "newest")
    with contextlib.suppress(streamd.Timeout):
        c.get("never", timeout=0.1)
    assert c.get("notes", timeout=30).text() == "newest"
    assert len(take(waiting, 80)) == 80


# --- errors ---


def refusals(c):
    """What fails, with the exception and a part of the sentence."""
    yield lambda: c.get("nothing"), streamd.NotFound, 'no stream named "nothing"', errno.ENOENT
    yield lambda: next(c.subscribe("nothing")), streamd.NotFound, 'no stream named "nothing"', errno.ENOENT
    yield lambda: c.get("private"), streamd.AccessDenied, 'may not read "private"', errno.EACCES
    yield lambda: c.publish("guarded", "x"), streamd.AccessDenied, 'may not write "guarded"', errno.EACCES
    yield lambda: c.publish("count", "x"), streamd.NotSupported, '"count" does not accept values', errno.EOPNOTSUPP
    yield lambda: c.publish("small", b"x" * 100_000), streamd.Invalid, 'is too large for "small"', errno.EMSGSIZE
    yield lambda: c.publish("notes", b"x" * 20_000_000), streamd.Invalid, "larger than any request may be", errno.EMSGSIZE
    yield lambda: next(c.subscribe("notes", since=2**62)), streamd.Invalid, "id", errno.EINVAL
    yield lambda: next(c.subscribe("notes", where={"n": 1})), streamd.Invalid, "where", errno.EINVAL
    yield lambda: c.subscribe("notes", where="[]"), streamd.Invalid, "no JSON object", errno.EINVAL
    yield lambda: c.subscribe("notes", since=-1), streamd.Invalid, "out of range", errno.EINVAL
    yield lambda: c.subscribe("notes", since=timedelta(-1)), streamd.Invalid, "out of range", errno.EINVAL
    yield lambda: c.subscribe("notes", start="end"), streamd.Invalid, "'end' is none of replay", errno.EINVAL
    yield lambda: c.subscribe("notes", on_lag="wait"), streamd.Invalid, "'wait' is none of skip", errno.EINVAL
    yield lambda: c.subscribe("notes", credit=0), streamd.Invalid, "not between 1 and", errno.EINVAL
    yield lambda: c.subscribe(""), streamd.Invalid, "1 to 255 bytes", errno.EINVAL
    yield lambda: c.publisher("notes", name="n" * 49), streamd.Invalid, "1 to 48 bytes", errno.EINVAL
    yield lambda: c.get("never", timeout=0.01), streamd.Timeout, "the time is over", errno.ETIMEDOUT
    yield lambda: streamd.connect("relative"), streamd.Invalid, '"relative" is no address', errno.EINVAL
    yield lambda: streamd.connect("/nowhere/socket"), streamd.ConnectionLost, "/nowhere/socket: No such file", errno.ENOENT


def test_errors_are_exceptions_by_kind(c):
    for action, kind, sentence, code in refusals(c):
        with pytest.raises(kind) as caught:
            action()
        error = caught.value
        assert type(error) is kind and isinstance(error, streamd.Error) and sentence in str(error) and error.code == code
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind and (str(copy), copy.code) == (str(error), code)
    assert issubclass(streamd.Timeout, TimeoutError) and issubclass(streamd.ConnectionLost, ConnectionError)
    assert c.get("notes")  # the connection is as before


def test_an_ended_object_keeps_its_reason(c):
    s = c.subscribe("nothing")
    for wait in (lambda: next(s), s.next, s.batch, lambda: s.next(0)):
        with pytest.raises(streamd.NotFound, match="nothing"):
            wait()
    p = c.publisher("guarded")
    p.send("x")
    for call in (p.flush, p.flush, lambda: p.send("y"), lambda: p.confirmed):
        with pytest.raises(streamd.AccessDenied, match="guarded"):
            call()


def test_requests_of_a_connection_are_limited(c):
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(c.subscribe("never")) for _ in range(17)]
        with pytest.raises(streamd.LimitExceeded) as caught:
            many[-1].next(30)
    assert caught.value.code == errno.EDQUOT


def test_a_name_has_one_publisher(c, address):
    with c.publisher("notes", name="only") as p, streamd.connect(address) as other:
        p.flush(30)
        with pytest.raises(streamd.Canceled) as caught:
            other.publisher("notes", name="only").flush(30)
    assert caught.value.code == errno.ECANCELED


def test_a_peer_that_is_no_streamd_is_a_protocol_error(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with streamd.connect(f"unix:{tmp_path}/socket") as c:
            peer, _ = listener.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            for _ in range(2):
                with pytest.raises(streamd.ProtocolError):
                    c.get("notes")
                with pytest.raises(streamd.ProtocolError):
                    c.subscribe("notes")
            peer.close()


@pytest.mark.parametrize("code, kind, reason", [
    (0x201, streamd.SourceFailed, streamd.Reason.FAILED), (0x203, streamd.Canceled, None), (0x301, streamd.Lagged, streamd.Reason.LAGGED),
    (0x0202 << 16 | 1, streamd.NotFound, streamd.Reason.NO_STREAM), (0x0202 << 16 | 9999, streamd.LimitExceeded, 9999),
])
def test_the_sentence_and_the_reason_of_a_refusal_are_those_of_the_exception(tmp_path, code, kind, reason):
    sentence = "events with ä are refused".encode()
    frame = b"".join(number.to_bytes(size, "big") for number, size in ((10 + len(sentence), 3), (1, 4), (0x0B << 10, 2), (code, 4)))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with streamd.connect(str(tmp_path / "socket")) as c, c.subscribe("any") as s:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(frame + sentence)
                with pytest.raises(kind) as caught:
                    s.next(30)
    assert str(caught.value) == sentence.decode()
    assert caught.value.reason == reason and type(caught.value.reason) is type(reason)


@pytest.mark.parametrize("action, reason", [
    (lambda c: c.get("nothing"), streamd.Reason.NO_STREAM), (lambda c: c.get("private"), streamd.Reason.MAY_NOT_READ),
    (lambda c: c.publish("guarded", "x"), streamd.Reason.MAY_NOT_WRITE), (lambda c: c.publish("count", "x"), streamd.Reason.TAKES_NO_VALUES),
    (lambda c: c.publish("small", b"x" * 100_000), streamd.Reason.TOO_LARGE),
    (lambda c: next(c.subscribe("notes", since=2**62)), streamd.Reason.UNKNOWN_POSITION),
    (lambda c: c.subscribe(""), None), (lambda c: c.get("never", timeout=0.01), None),
])
def test_an_error_has_the_reason_of_the_daemon(c, action, reason):
    with pytest.raises(streamd.Error) as caught:
        action(c)
    assert caught.value.reason == reason
    assert pickle.loads(pickle.dumps(caught.value)).reason == reason


# --- the ends of objects ---


def test_a_closed_object_raises_value_error(c):
    s, p = c.subscribe("notes"), c.publisher("notes")
    s.close()
    p.close()
    for call in (s.next, s.batch, lambda: next(s), s.__enter__, p.flush, lambda: p.send("x"), lambda: p.confirmed, p.__enter__):
        with pytest.raises(ValueError, match="closed"):
            call()
    s.close()
    with streamd.connect() as d:
        child, other = d.subscribe("notes"), d.publisher("notes")
        assert d.fileno() > 0 and child.next(30)
    d.close()
    calls = (d.fileno, lambda: d.get("notes"), lambda: d.subscribe("notes"), lambda: d.publish("notes", ""), d.__enter__,
             lambda: next(child), child.batch, lambda: other.send("x"))
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()


def test_leaving_a_publisher_flushes_unless_there_was_an_exception(c):
    since = newest_id(c, "notes")
    with pytest.raises(KeyError), c.publisher("notes") as p:
        raise KeyError
    with c.publisher("notes") as p:
        assert p.confirmed == 0
        for number in range(10_000):
            p.send(str(number))
        p.flush()
        assert p.confirmed == 10_000
        p.send("last")
    assert [event.text() for event in streamd.read("notes", since=since)] == [*map(str, range(10_000)), "last"]


def test_objects_end_when_nothing_refers_to_them(address):
    types = (streamd.Event, streamd.Connection, streamd.Subscription, streamd.Publisher)

    def references():
        return len(os.listdir("/proc/self/fd")), *map(sys.getrefcount, types)

    before = references()
    for _ in range(10):
        c = streamd.connect()
        s, p = c.subscribe("notes"), c.publisher("notes")
        del c
        assert s.next(30)
        assert hash(pickle.loads(pickle.dumps(s.next(30)))) and p.confirmed == 0
        del s, p
    assert references() == before


# --- threads ---


def test_threads_use_connections_of_their_own(c, address):
    since = newest_id(c, "notes")
    results = []

    def count():
        with streamd.connect(address) as mine, mine.subscribe("notes", since=since) as s:
            results.append(sum(int(event.text()) for event in take(s, 5000)))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    publish(c, "notes", map(str, range(5000)))
    for thread in threads:
        thread.join(60)
    assert results == [sum(range(5000))] * 4


def test_a_second_thread_is_refused_and_may_drop_objects(c, address):
    waiting, dropped = c.subscribe("notes", since=newest_id(c, "notes")), [c.subscribe("notes"), c.publisher("notes")]
    results = []
    thread = threading.Thread(target=lambda: results.append(waiting.next(60).text()))
    thread.start()
    with pytest.raises(RuntimeError, match="another thread"):
        while thread.is_alive():
            c.fileno()
    for call in (c.close, waiting.close, lambda: next(waiting), lambda: c.subscribe("notes"), lambda: c.publish("notes", "")):
        with pytest.raises(RuntimeError, match="another thread"):
            call()
    dropped.clear()
    with streamd.connect(address) as other:
        other.publish("notes", "the end of the wait")
    thread.join()
    assert results == ["the end of the wait"] and c.get("notes").text() == "the end of the wait"
