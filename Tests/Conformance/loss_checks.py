"""What must hold for subscriptions over a loss of the connection."""

import json

from daemon import expect
from proxy import REQUEST_STREAM
from trial import ALL, check, must_be, numbers, page, quote


@check()
def cut_within_a_frame(trial):
    """over a connection that is cut within a frame, no event comes twice or is left out"""
    trial.daemon.publish("notes", *numbers(40))
    trial.proxy.cut_within(14)
    reader = trial.subscribe("notes", **ALL, reconnect=True)
    events = reader.take(20)
    trial.proxy.cut_within(9)
    trial.daemon.publish("notes", *numbers(20, 41))
    must_be(events + reader.take(40), numbers(60))


@check()
def cut_within_a_large_event(trial):
    """over a connection that is cut within the fragments of an event, it comes once and whole"""
    data = page(500_000)
    trial.daemon.publish("pages", data, "next")
    trial.proxy.cut_within(4)
    one, other = trial.subscribe("pages", **ALL, reconnect=True).take(2)
    expect((one.data, other.data, other.gap) == (data, b"next", 0), "the events are others")


@check()
def kill_of_the_daemon(trial):
    """over a kill of the daemon no event comes twice or is left out"""
    reader = trial.subscribe("notes", trial.connect(trial.daemon.socket), reconnect=True, **ALL)
    trial.daemon.publish("notes", *numbers(20))
    events = reader.take(10)
    trial.daemon.kill()
    trial.daemon.begin()
    trial.daemon.publish("notes", *numbers(20, 21))
    must_be(events + reader.take(30), numbers(40))


@check()
def restart_of_the_daemon(trial):
    """a stop of the daemon is a loss for a subscription that reconnects"""
    reader = trial.subscribe("notes", trial.connect(trial.daemon.socket), reconnect=True, **ALL)
    trial.daemon.publish("notes", *numbers(3))
    events = reader.take(3)
    trial.daemon.stop()
    trial.daemon.begin()
    trial.daemon.publish("notes", "4")
    must_be(events + reader.take(1), numbers(4))


@check("request")
def credit_that_remained(trial):
    """over a cut connection the credit that remained is what is granted again"""
    trial.daemon.publish("notes", *numbers(4))
    reader = trial.subscribe("notes", window=0, **ALL, reconnect=True)
    reader.request(10)
    events = reader.take(4)
    trial.proxy.cut()
    reader.begin_next()
    request = trial.proxy.wait_for(REQUEST_STREAM, 2)
    expect(request.credit == 6, f"the client has requested {request.credit} events, not 6")
    trial.daemon.publish("notes", *numbers(20, 5))
    events += [reader.finish_next().must_be("event"), *reader.take(5)]
    must_be(events, numbers(10))
    reader.must_be_quiet()


def left_behind_by_a_loss(trial, **options):
    trial.daemon.publish("brief", "1")
    reader = trial.subscribe("brief", reconnect=True, **ALL, **options)
    reader.event()
    trial.proxy.block()
    trial.daemon.publish("brief", *numbers(10, 2))
    trial.proxy.admit()
    event = reader.event()
    expect((event.data, event.gap) == (b"8", 6), f"event {event.data} follows a gap of {event.gap}, not 6")


@check()
def gap_over_a_loss(trial):
    """a gap that arose while the connection was lost has its number"""
    left_behind_by_a_loss(trial)


@check()
def gap_over_a_loss_with_fail(trial):
    """on lag, fail: a gap that arose while the connection was lost is a gap, not a failure"""
    left_behind_by_a_loss(trial, on_lag="fail")


@check()
def unknown_gap(trial):
    """a gap of events that the daemon has no record of is unknown, not a number"""
    trial.daemon.publish("volatile", "1")
    reader = trial.subscribe("volatile", trial.connect(trial.daemon.socket), reconnect=True, **ALL)
    reader.event()
    trial.daemon.kill()
    trial.daemon.begin()
    trial.daemon.publish("volatile", "2", "3")
    one, other = reader.take(2)
    expect((one.data, one.gap) == (b"2", "unknown"), f"event {one.data} follows a gap of {one.gap}")
    expect(other.gap == 0, "the gap is repeated")


@check()
def filter_over_a_loss(trial):
    """over a loss, what a filter left out before and after it is counted once, and no gap"""
    reader = trial.subscribe("notes", **ALL, where='{"/symbol": "A"}', reconnect=True)
    trial.daemon.publish("notes", *[quote(symbol) for symbol in "ABBB"])
    first = reader.event()
    trial.proxy.cut()
    trial.daemon.publish("notes", *[quote(symbol) for symbol in "BBA"])
    event = reader.event()
    found = (event.id - first.id, event.left_out, event.gap)
    expect(found == (6, 5, 0), f"id, left out events and gap are {found}, not (6, 5, 0)")


@check()
def loss_before_the_first_event(trial):
    """before the first event a loss repeats the request"""
    reader = trial.subscribe("notes", from_="latest", reconnect=True)
    reader.begin_next()
    trial.proxy.wait_for(REQUEST_STREAM)
    trial.proxy.cut()
    trial.proxy.wait_for(REQUEST_STREAM, 2)
    trial.daemon.publish("notes", "1")
    must_be([reader.finish_next().must_be("event")], ["1"])


@check()
def cut_without_reconnect(trial):
    """without reconnection a cut connection is an error, after the events before it"""
    trial.daemon.publish("notes", *numbers(3))
    trial.proxy.cut_within(4)
    reader = trial.subscribe("notes", **ALL)
    must_be(reader.take(3), numbers(3))
    reader.begin_next()
    trial.daemon.publish("notes", "4")
    reader.finish_next().must_fail("connection-lost")
    reader.must_end("connection-lost")


@check()
def kill_without_reconnect(trial):
    """without reconnection a kill of the daemon is an error"""
    connection = trial.connect(trial.daemon.socket)
    reader = trial.subscribe("notes", connection)
    trial.settle(connection)
    trial.daemon.kill()
    reader.must_end("connection-lost")


@check()
def loss_within_a_state(trial):
    """a loss within a state ends the subscription, although it reconnects"""
    trial.daemon.publish("quotes", *[quote(symbol) for symbol in "ABCD"])
    trial.proxy.cut_within(3)
    reader = trial.subscribe("quotes", from_="state", reconnect=True)
    reader.take(2)
    reader.must_end("connection-lost")


def lost_after_state(trial, **options):
    trial.daemon.publish("quotes", *[quote(symbol, n=1) for symbol in "AB"])
    reader = trial.subscribe("quotes", from_="state", reconnect=True, **options)
    reader.take(2)
    if "marker" in options:
        reader.marker()
    else:
        reader.must_be_quiet()
    trial.proxy.cut()
    trial.daemon.publish("quotes", quote("A", n=2))
    event = reader.event()
    expect((json.loads(event.data), event.gap) == ({"symbol": "A", "n": 2}, 0), f"`{event.line}` follows")


@check()
def loss_after_a_state(trial):
    """a loss after the marker of a state is restored as others are"""
    lost_after_state(trial, marker=True)


@check()
def loss_after_a_state_without_marker(trial):
    """a loss after a state is restored, although the program has not asked for markers"""
    lost_after_state(trial)
