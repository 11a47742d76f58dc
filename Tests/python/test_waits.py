"""Waits end with exceptions of signal handlers and with timeouts; connections are restored after a kill of the daemon."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

import streamd


@contextlib.contextmanager
def signals(number=signal.SIGINT, after=0.2):
    """Sends a signal to this process soon."""
    timer = threading.Timer(after, os.kill, [os.getpid(), number])
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.fixture
def c(address):
    with streamd.connect() as connection:
        yield connection


@pytest.fixture
def stalled(address):
    """A stream that accepts no value, because a subscription has not taken its events."""
    with streamd.connect() as other:
        s, p = other.subscribe("full", start="latest", credit=1), other.publisher("full")
        other.publish("full", "first")
        s.next(30)
        for _ in range(10):
            p.send("filler")
        with pytest.raises(streamd.Timeout):
            p.flush(0.1)
        yield "full"


def fill_queue(p):
    while True:
        p.send(b"x" * 100_000)


WAITS = {
    "iterator": lambda c, stalled: next(c.subscribe("never")),
    "next": lambda c, stalled: c.subscribe("never").next(),
    "next with a timeout": lambda c, stalled: c.subscribe("never").next(100),
    "batch": lambda c, stalled: c.subscribe("never").batch(),
    "get": lambda c, stalled: c.get("never"),
    "publish": lambda c, stalled: c.publish(stalled, "x"),
    "send": lambda c, stalled: fill_queue(c.publisher(stalled)),
    "flush": lambda c, stalled: (p := c.publisher(stalled)).send("x") or p.flush(),
    "named flush": lambda c, stalled: (p := c.publisher(stalled, name="waits")).send("x") or p.flush(),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_keyboard_interrupt_ends_each_wait(c, stalled, wait):
    with signals(), pytest.raises(KeyboardInterrupt):
        WAITS[wait](c, stalled)
    c.publish("notes", wait)
    assert c.get("notes").text() == wait


def test_a_keyboard_interrupt_ends_connecting(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        with signals(after=0.5), pytest.raises(KeyboardInterrupt):
            while True:  # until its queue is full
                stack.enter_context(streamd.connect(str(tmp_path / "socket")))


def test_an_interrupted_object_continues(c):
    s = c.subscribe("notes", start="new")
    for number in range(3):
        with signals(), pytest.raises(KeyboardInterrupt):
            next(s)
        c.publish("notes", str(number))
        assert s.next(30).text() == str(number)


def test_a_handler_without_an_exception_does_not_end_a_wait(c, address):
    def publish(number, frame):
        with streamd.connect(address) as other:
            other.publish("notes", "by the handler")

    former = signal.signal(signal.SIGUSR1, publish)
    try:
        c.publish("notes", "before")
        s = c.subscribe("notes", since=c.get("notes").id)
        with signals(signal.SIGUSR1):
            assert next(s).text() == "by the handler"
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_a_handler_may_use_and_close_the_connection(c):
    def close(number, frame):
        c.publish("notes", "last")
        c.close()

    former = signal.signal(signal.SIGUSR1, close)
    try:
        s = c.subscribe("never")
        with signals(signal.SIGUSR1), pytest.raises(ValueError, match="closed"):
            next(s)
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_each_wait_has_a_timeout(c, stalled):
    s, p = c.subscribe("never"), c.publisher(stalled)
    p.send("x")
    waits = (s.next, lambda timeout: s.batch(timeout=timeout), lambda timeout: c.get("never", timeout=timeout), p.flush,
             lambda timeout: c.publish(stalled, "x", timeout=timeout))
    for wait in waits:
        for timeout in (0, -1, 0.05, 1.1 if wait == s.next else 0.01):  # longer than one look at signals
            start = time.monotonic()
            with pytest.raises(streamd.Timeout):
                wait(timeout)
            assert time.monotonic() - start >= timeout
    with pytest.raises(ValueError):
        s.next(float("nan"))


def test_a_subscription_continues_after_a_kill(server):
    with streamd.connect(server.socket) as c, streamd.connect(server.socket) as other:
        other.publish("notes", "before")
        s, fragile = c.subscribe("notes"), c.subscribe("notes", reconnect=False)
        assert s.next(30).text() == "before"
        server.kill()
        server.begin()
        with streamd.connect(server.socket) as third:
            third.publish("notes", "after")
        event = s.next(60)
        assert (event.text(), event.gap) == ("after", 0)
        with pytest.raises(streamd.ConnectionLost):
            list(fragile)
        assert c.get("notes").text() == "after"
        for _ in range(2):
            with pytest.raises(streamd.ConnectionLost):
                other.get("notes")  # nothing on it reconnects


def test_a_named_publisher_loses_and_repeats_nothing_over_a_kill(server):
    with streamd.connect(server.socket) as c, c.publisher("notes", name="sensor") as p:
        for number in range(1, 3001):
            p.send(str(number))
            if number == 1500:
                server.kill()
                server.begin()
        p.flush(60)
        assert p.confirmed == 3000
    texts = [event.text() for event in streamd.read("notes", address=server.socket)]
    assert texts == list(map(str, range(1, 3001)))
    with streamd.connect(server.socket) as c, c.publisher("notes", name=b"sensor") as p:
        p.flush(30)
        assert p.confirmed == 3000  # a program continues its input here


def test_where_a_name_continues_is_unknown_before_the_reply(tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        with streamd.connect(str(tmp_path / "socket")) as c:
            assert c.publisher("notes").confirmed == 0
            with pytest.raises(streamd.Error, match="not replied"):
                c.publisher("notes", name="sensor").confirmed
