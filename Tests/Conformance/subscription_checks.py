"""What must hold for subscriptions and requests for one value."""

import json
import os
import time

from daemon import expect
from proxy import CANCEL, ERROR, KEEPALIVE, REQUEST_RESPONSE, REQUEST_STREAM, encoded
from trial import check

APPLICATION_ERROR = 0x201
RESPOND = 0x80

# Every stored event.
ALL = {"from_": "ago", "since": 3_600_000_000}

def numbers(count, first=1):
    return [str(number) for number in range(first, first + count)]


def must_be(events, values):
    """The events have these data and ids that rise by 1, and none was missed."""
    found = [event.data.decode() for event in events]
    expect(found == list(values), f"expected {values}, not {found}")
    ids = [event.id for event in events]
    expect(ids == list(range(ids[0], ids[0] + len(ids))), f"the ids are {ids}")
    expect(all(event.gap == 0 for event in events), f"the gaps are {[event.gap for event in events]}")


def page(size):
    """Bytes of which each part has another content."""
    return b"".join(b"%08x" % number for number in range(size // 8))


def quote(symbol, **members):
    return json.dumps({"symbol": symbol, **members})


# Credit


@check("request")
def no_more_than_requested(trial):
    """no more events come than were requested"""
    trial.daemon.publish("notes", *numbers(10))
    reader = trial.subscribe("notes", window=0, **ALL)
    reader.must_be_quiet()
    reader.request(3)
    must_be(reader.take(3), numbers(3))
    reader.must_be_quiet()
    expect(trial.proxy.granted() == 3, f"the client has granted {trial.proxy.granted()} events, not 3")


@check("request")
def credit_accumulates(trial):
    """credit accumulates, also while none is used"""
    reader = trial.subscribe("notes", window=0)
    for count in (1, 2, 3):
        reader.request(count)
    reader.must_be_quiet()
    trial.daemon.publish("notes", *numbers(8))
    must_be(reader.take(6), numbers(6))
    reader.must_be_quiet()
    expect(trial.proxy.granted() == 6, f"the client has granted {trial.proxy.granted()} events, not 6")


@check("request")
def unlimited_credit(trial):
    """credit without limit does not run out, and further credit does not overflow it"""
    trial.daemon.publish("notes", *numbers(300))
    reader = trial.subscribe("notes", window=0, **ALL)
    reader.request("unlimited")
    reader.request(2**31 - 1)
    must_be(reader.take(300), numbers(300))


@check()
def small_window(trial):
    """a window of one event delivers all events, and keeps no more credit open"""
    trial.daemon.publish("notes", *numbers(50))
    must_be(trial.subscribe("notes", window=1, **ALL).take(50), numbers(50))
    expect(trial.proxy.granted() <= 51, f"the client has granted {trial.proxy.granted()} events for 50 taken ones")


@check()
def independent_subscriptions(trial):
    """a subscription whose events are not taken does not delay another one of its connection"""
    connection = trial.connect()
    idle = trial.subscribe("notes", connection, window=1)
    reader = trial.subscribe("notes", connection)
    trial.daemon.publish("notes", *numbers(100))
    must_be(reader.take(100), numbers(100))
    must_be(idle.take(100), numbers(100))


# Content


@check()
def data_is_unchanged(trial):
    """data has each byte, or none, as it was published, and events have their times"""
    before = time.time() * 1e6
    values = [bytes(range(256)), b"", "grüße €\n".encode()]
    trial.daemon.publish("notes", *values)
    events = trial.subscribe("notes", **ALL).take(3)
    expect([event.data for event in events] == values, "the data is another")
    times = [event.number("time") for event in events]
    expect(before - 1e6 <= times[0] <= times[1] <= times[2] <= time.time() * 1e6 + 1e6, f"the times are {times}")


@check()
def large_events(trial):
    """an event of 3 MB, which comes in fragments, is whole, and so is the next one"""
    data = page(3_000_000)
    trial.daemon.publish("pages", data, "next")
    one, other = trial.subscribe("pages", **ALL).take(2)
    expect(one.data == data, f"the event has {len(one.data)} bytes, not the {len(data)} that were published")
    expect(other.data == b"next", "the event after it is another")


# Where to begin


@check()
def replay(trial):
    """from the replay: the last events as the stream is configured, then new ones"""
    trial.daemon.publish("notes", *numbers(5))
    reader = trial.subscribe("notes", from_="replay")
    must_be(reader.take(3), numbers(3, 3))
    trial.daemon.publish("notes", "6")
    must_be([reader.event()], ["6"])


@check()
def latest(trial):
    """from the latest: the newest event, then new ones"""
    trial.daemon.publish("notes", *numbers(5))
    reader = trial.subscribe("notes", from_="latest")
    must_be([reader.event()], ["5"])
    trial.daemon.publish("notes", "6")
    must_be([reader.event()], ["6"])


@check()
def only_new(trial):
    """from new: only events after the request"""
    trial.daemon.publish("notes", *numbers(5))
    reader = trial.subscribe("notes", from_="new")
    reader.must_be_quiet()
    trial.proxy.wait_for(REQUEST_STREAM)
    trial.daemon.publish("notes", "6")
    must_be([reader.event()], ["6"])


@check()
def from_an_id(trial):
    """from an id: the event after it"""
    trial.daemon.publish("notes", *numbers(6))
    events = trial.subscribe("notes", **ALL).take(6)
    must_be(trial.subscribe("notes", from_="id", since=events[2].id).take(3), numbers(3, 4))


@check()
def from_a_time(trial):
    """from a time: the first event that has it, to the microsecond"""
    for value in numbers(4):
        trial.daemon.publish("notes", value)
    events = trial.subscribe("notes", **ALL).take(4)
    since = events[2].number("time")
    expect(since > events[1].number("time"), "two events have one time")
    must_be(trial.subscribe("notes", from_="time", since=since).take(2), ["3", "4"])


@check()
def from_a_duration(trial):
    """from a duration before the present: the events since then"""
    trial.daemon.publish("notes", *numbers(6))
    must_be(trial.subscribe("notes", **ALL).take(6), numbers(6))


@check("last")
def from_the_last(trial):
    """from the last so many: these, then new ones"""
    trial.daemon.publish("notes", *numbers(6))
    reader = trial.subscribe("notes", from_="last", since=4)
    must_be(reader.take(4), numbers(4, 3))
    trial.daemon.publish("notes", "7")
    must_be([reader.event()], ["7"])


# Gaps


@check()
def exact_gap(trial):
    """a gap has the number of events that were missed since the id"""
    trial.daemon.publish("brief", "1")
    [first] = trial.subscribe("brief", **ALL).take(1)
    trial.daemon.publish("brief", *numbers(10, 2))
    one, other = trial.subscribe("brief", from_="id", since=first.id).take(2)
    expect((one.data, one.gap) == (b"8", 6), f"event {one.data} follows a gap of {one.gap}, not 6")
    expect(other.gap == 0, "the gap is repeated")


def left_behind(trial, **options):
    """A subscription that has got event 1 of 11, and requested the next one only when it was evicted."""
    reader = trial.subscribe("brief", window=0, from_="new", **options)
    reader.request(1)
    reader.must_be_quiet()
    trial.daemon.publish("brief", "1")
    reader.event()
    trial.daemon.publish("brief", *numbers(10, 2))
    reader.request(2)
    return reader


@check("request")
def skips_lost_events(trial):
    """on lag, skip: the oldest stored event follows, with the number of events between"""
    one, other = left_behind(trial, on_lag="skip").take(2)
    expect((one.data, one.gap) == (b"8", 6), f"event {one.data} follows a gap of {one.gap}, not 6")
    expect((other.data, other.gap) == (b"9", 0), f"event {other.data} follows, with a gap of {other.gap}")


@check("request")
def continues_with_latest(trial):
    """on lag, latest: the newest event follows, with the number of events between"""
    event = left_behind(trial, on_lag="latest").event()
    expect((event.data, event.gap) == (b"11", 9), f"event {event.data} follows a gap of {event.gap}, not 9")


@check("request")
def fails_on_lag(trial):
    """on lag, fail: the subscription ends with the number of lost events"""
    left_behind(trial, on_lag="fail", reconnect=True).must_end("lagged", "lagged: 6 events lost")


# Filters and markers


@check()
def filter_leaves_out(trial):
    """a filter leaves out what does not fit, and counts it, which is no gap"""
    trial.daemon.publish("notes", *[quote(symbol) for symbol in "ABBA"], "not JSON", quote("A"))
    one, two, three = trial.subscribe("notes", **ALL, where='{"/symbol": "A"}').take(3)
    found = [(event.id - one.id, event.left_out, event.gap) for event in (one, two, three)]
    expect(found == [(0, 0, 0), (3, 2, 0), (5, 1, 0)], f"ids, left out events and gaps are {found}")


@check()
def filter_is_not_rounded(trial):
    """a filter's numbers are not rounded, and its strings are any text"""
    values = [f'{{"n": {text}, "s": "€\\n\\"x"}}' for text in ("9007199254740993", "9007199254740992", "0.1", "0.10000000000000001")]
    trial.daemon.publish("notes", *values)
    for pattern, place in (("9007199254740993", 0), ("0.1", 2)):
        where = f'{{"/n": {pattern}, "/s": {{"prefix": "€\\n\\""}}}}'
        reader = trial.subscribe("notes", **ALL, where=where, marker=True)
        expect(reader.event().data.decode() == values[place], f"another event than {values[place]} fits")
        reader.marker()


@check()
def marker_follows(trial):
    """a marker follows the last stored event, with its id"""
    trial.daemon.publish("notes", *numbers(3))
    reader = trial.subscribe("notes", **ALL, marker=True)
    events = reader.take(3)
    marker = reader.marker()
    expect((marker.id, marker.gap) == (events[2].id, 0), "the marker has another id, or a gap")
    trial.daemon.publish("notes", "4")
    must_be([events[2], reader.event()], ["3", "4"])


@check("request")
def marker_costs_credit(trial):
    """a marker costs one credit"""
    trial.daemon.publish("notes", *numbers(2))
    reader = trial.subscribe("notes", window=0, **ALL, marker=True)
    reader.request(2)
    reader.take(2)
    reader.must_be_quiet()
    reader.request(2)
    reader.marker()
    trial.daemon.publish("notes", *numbers(2, 3))
    must_be([reader.event()], ["3"])
    reader.must_be_quiet()


@check()
def marker_counts(trial):
    """a marker has the number of events that a filter left out before it"""
    trial.daemon.publish("notes", *[quote(symbol) for symbol in "ABB"])
    reader = trial.subscribe("notes", **ALL, where='{"/symbol": "A"}', marker=True)
    event, marker = reader.event(), reader.marker()
    expect((marker.id - event.id, marker.left_out) == (2, 2), f"the marker is `{marker.line}` after {event.id}")


@check()
def marker_resumes(trial):
    """what a filter left out before a marker is not missed after a loss"""
    trial.daemon.publish("brief", *[quote(symbol) for symbol in "ABBB"])
    reader = trial.subscribe("brief", where='{"/symbol": "A"}', marker=True, reconnect=True, **ALL)
    reader.event()
    marker = reader.marker()
    trial.proxy.block()
    trial.daemon.publish("brief", *[quote(symbol) for symbol in "BBBA"])
    trial.proxy.admit()
    event = reader.event()
    found = (event.id - marker.id, event.left_out, event.gap)
    expect(found == (4, 3, 0), f"id, left out events and gap are {found}, not (4, 3, 0)")


@check("request")
def credit_is_for_events(trial):
    """credit is for events alone if the program has not asked for markers"""
    trial.daemon.publish("notes", *[quote(symbol) for symbol in "ABA"])
    reader = trial.subscribe("notes", window=0, where='{"/symbol": "A"}', reconnect=True, **ALL)
    reader.request(3)
    reader.take(2)
    reader.must_be_quiet()
    trial.daemon.publish("notes", *[quote(symbol) for symbol in "BAA"])
    reader.event()
    reader.must_be_quiet()


# State


@check()
def state(trial):
    """from the state: the newest event of each key that was not removed, in the order of ids, a marker, and later events"""
    values = [quote("A", n=1), quote("B", n=2), quote("A", n=3), quote("C", n=4), quote("C", delisted=True), quote("D", n=6)]
    trial.daemon.publish("quotes", *values)
    reader = trial.subscribe("quotes", from_="state", marker=True, window=2)
    found = [event.data.decode() for event in reader.take(3)]
    expect(found == [values[1], values[2], values[5]], f"the state is {found}")
    reader.marker()
    trial.daemon.publish("quotes", quote("B", delisted=True))
    expect(json.loads(reader.event().data) == {"symbol": "B", "delisted": True}, "another event follows the state")


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


# Ends


@check()
def completion(trial):
    """the end of a finite stream follows its last event, and stays"""
    reader = trial.subscribe("count", **ALL, reconnect=True)
    reader.take(5)
    reader.must_end("complete")
    reader.must_end("complete")


@check("request")
def completion_without_credit(trial):
    """the end of a finite stream requires no credit"""
    reader = trial.subscribe("count", window=0, **ALL)
    reader.request(5)
    reader.take(5)
    reader.must_end("complete")


@check()
def failed_source(trial):
    """a permanent failure of a source is its sentence, after which the other subscriptions continue"""
    connection = trial.connect()
    other = trial.subscribe("notes", connection)
    other.must_be_quiet()
    reader = trial.subscribe("volatile", connection, reconnect=True)
    reader.begin_next()
    request = trial.proxy.wait_for(REQUEST_STREAM, 2)
    trial.proxy.inject(encoded(request.stream, ERROR, 0, APPLICATION_ERROR.to_bytes(4, "big") + b"no such symbol"))
    reader.finish_next().must_fail("source-failed", "no such symbol")
    trial.daemon.publish("notes", "1")
    must_be([other.event()], ["1"])


@check()
def stop_of_the_daemon(trial):
    """a stop of the daemon ends a subscription that does not reconnect, after its events"""
    reader = trial.subscribe("notes")
    reader.must_be_quiet()
    trial.daemon.publish("notes", "1")
    must_be([reader.event()], ["1"])
    trial.daemon.stop()
    reader.must_end("canceled", "streamd is stopping")


@check()
def removed_stream(trial):
    """a stream that is removed ends its subscriptions, although they reconnect"""
    connection = trial.connect()
    readers = [trial.subscribe("volatile", connection), trial.subscribe("volatile", connection, reconnect=True)]
    for reader in readers:
        reader.must_be_quiet()
    trial.daemon.reload_without("volatile")
    readers[0].must_end("canceled", "")
    reply = readers[1].next().must_be("end")
    expect(reply.text("kind") in ("canceled", "not-found", "rejected"), f"it ends with `{reply.line}`")


@check()
def cancellation(trial):
    """a closed subscription is cancelled at the daemon, and its connection continues"""
    connection = trial.connect()
    reader = trial.subscribe("notes", connection)
    reader.must_be_quiet()
    trial.proxy.wait_for(REQUEST_STREAM)
    reader.close()
    trial.proxy.wait_for(CANCEL)
    trial.daemon.publish("notes", "1")
    must_be([trial.subscribe("notes", connection).event()], ["1"])


# Losses of the connection


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
    reader = trial.subscribe("notes", trial.connect(trial.daemon.socket), reconnect=True)
    reader.must_be_quiet()
    trial.daemon.publish("notes", *numbers(20))
    events = reader.take(10)
    trial.daemon.kill()
    trial.daemon.begin()
    trial.daemon.publish("notes", *numbers(20, 21))
    must_be(events + reader.take(30), numbers(40))


@check()
def restart_of_the_daemon(trial):
    """a stop of the daemon is a loss for a subscription that reconnects"""
    reader = trial.subscribe("notes", trial.connect(trial.daemon.socket), reconnect=True)
    reader.must_be_quiet()
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


@check()
def gap_over_a_loss(trial):
    """a gap that arose while the connection was lost has its number"""
    reader = trial.subscribe("brief", reconnect=True)
    reader.must_be_quiet()
    trial.daemon.publish("brief", "1")
    reader.event()
    trial.proxy.block()
    trial.daemon.publish("brief", *numbers(10, 2))
    trial.proxy.admit()
    event = reader.event()
    expect((event.data, event.gap) == (b"8", 6), f"event {event.data} follows a gap of {event.gap}, not 6")


@check()
def gap_over_a_loss_with_fail(trial):
    """on lag, fail: a gap that arose while the connection was lost is a gap, not a failure"""
    reader = trial.subscribe("brief", on_lag="fail", reconnect=True)
    reader.must_be_quiet()
    trial.daemon.publish("brief", "1")
    reader.event()
    trial.proxy.block()
    trial.daemon.publish("brief", *numbers(10, 2))
    trial.proxy.admit()
    event = reader.event()
    expect((event.data, event.gap) == (b"8", 6), f"event {event.data} follows a gap of {event.gap}, not 6")


@check()
def unknown_gap(trial):
    """a gap of events that the daemon has no record of is unknown, not a number"""
    reader = trial.subscribe("volatile", trial.connect(trial.daemon.socket), reconnect=True)
    reader.must_be_quiet()
    trial.daemon.publish("volatile", "1")
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
    reader = trial.subscribe("notes", trial.connect(trial.daemon.socket))
    reader.must_be_quiet()
    trial.daemon.kill()
    reader.must_end("connection-lost")


# Refusals


def refused(trial, stream, kind, sentence, **options):
    """The daemon refuses a subscription, which the client does not try again, and another one of its connection continues."""
    connection = trial.connect()
    other = trial.subscribe("volatile", connection)
    other.must_be_quiet()
    trial.subscribe(stream, connection, reconnect=True, **options).must_end(kind, sentence)
    trial.daemon.publish("volatile", "1")
    must_be([other.event()], ["1"])


@check()
def unknown_stream(trial):
    """a subscription to a stream that does not exist is refused"""
    refused(trial, "nothing", "not-found", 'no stream named "nothing"')


@check()
def no_access(trial):
    """a subscription without access is refused"""
    refused(trial, "private", "access-denied", f'uid {os.geteuid()} may not read "private"')


@check()
def id_of_the_future(trial):
    """a subscription from an id that no event has yet is invalid"""
    refused(trial, "notes", "invalid", "", from_="id", since=10**18)


@check()
def state_without_keys(trial):
    """a subscription from the state of a stream without keys is invalid"""
    refused(trial, "notes", "invalid", "the stream has no keys, and so no state", from_="state")


@check()
def invalid_filter(trial):
    """an invalid filter is refused, by the daemon or before"""
    connection, number = trial.connect(), trial.handle()
    words = {"stream": "notes", "window": "16", "where": '{"/a": {"like": 1}}'}
    reply = trial.driver.ask("subscribe", subscription=number, connection=connection, **words)
    if reply.verb == "ok":
        reply = trial.driver.ask("next", subscription=number, wait="30000")
    reply.must_fail("invalid")


@check()
def too_many_requests(trial):
    """a request over the limit of a connection is refused, and the others continue"""
    connection = trial.connect()
    readers = [trial.subscribe("notes", connection) for _ in range(8)]
    readers[7].must_be_quiet()
    trial.proxy.wait_for(REQUEST_STREAM, 8)
    trial.subscribe("notes", connection).must_end("limit")
    trial.daemon.publish("notes", "1")
    for reader in readers:
        must_be([reader.event()], ["1"])


@check()
def nobody_listens(trial):
    """a daemon that is not there is an error of the connection or of its first request"""
    number, address = trial.handle(), str(trial.daemon.folder / "nothing.sock")
    reply = trial.driver.ask("connect", connection=number, address=address)
    if reply.verb == "ok":
        reply = trial.subscribe("notes", number, reconnect=True).next()
    reply.must_fail("connection-lost")


# One value


@check()
def get_the_newest(trial):
    """a request for one value returns the newest event"""
    trial.daemon.publish("notes", *numbers(3))
    connection = trial.connect()
    expect(trial.get("notes", connection).must_be("event").data == b"3", "the newest event is another")
    trial.daemon.publish("notes", "4")
    expect(trial.get("notes", connection).must_be("event").data == b"4", "the newest event is another")


@check()
def get_waits(trial):
    """a request for one value of an empty stream waits for the first event, and can be given up"""
    connection = trial.connect()
    trial.get("notes", connection, wait=100).must_be("nothing")
    trial.proxy.wait_for(CANCEL)
    requests = trial.proxy.count(REQUEST_RESPONSE) + trial.proxy.count(REQUEST_STREAM)
    trial.begin_get("notes", connection)
    while trial.proxy.count(REQUEST_RESPONSE) + trial.proxy.count(REQUEST_STREAM) == requests:
        time.sleep(0.01)
    trial.daemon.publish("notes", "1")
    expect(trial.driver.receive().must_be("event").data == b"1", "the event is another")


@check()
def get_is_refused(trial):
    """a request for one value of a stream that does not exist, or without access, is refused"""
    connection = trial.connect()
    trial.get("nothing", connection).must_fail("not-found", 'no stream named "nothing"')
    trial.get("private", connection).must_fail("access-denied", "may not read")


# The connection


@check("keepalive")
def keepalive(trial):
    """a quiet subscription keeps its connection alive for longer than the daemon's max_lifetime"""
    trial.daemon.stop()
    trial.daemon.begin('max_lifetime = "2s"')
    reader = trial.subscribe("notes")
    reader.next(3000).must_be("nothing")
    trial.daemon.publish("notes", "1")
    must_be([reader.event()], ["1"])


@check()
def answers_keepalive(trial):
    """a KEEPALIVE that asks for an answer is answered"""
    reader = trial.subscribe("notes")
    reader.begin_next()
    trial.proxy.wait_for(REQUEST_STREAM)
    trial.proxy.inject(encoded(0, KEEPALIVE, RESPOND, bytes(8) + b"data"))
    while not any(frame.kind == KEEPALIVE and not frame.flags & RESPOND for frame in list(trial.proxy.sent)):
        time.sleep(0.01)
    trial.daemon.publish("notes", "1")
    must_be([reader.finish_next()], ["1"])


@check()
def unknown_frame(trial):
    """a frame of an unknown type with the flag to ignore it is ignored"""
    reader = trial.subscribe("notes")
    reader.begin_next()
    trial.proxy.wait_for(REQUEST_STREAM)
    trial.proxy.inject(encoded(0, 0x30, 0x200, b"data"))
    trial.daemon.publish("notes", "1")
    must_be([reader.finish_next()], ["1"])


@check()
def malformed_frame(trial):
    """a malformed frame is an error of the protocol or a lost connection"""
    reader = trial.subscribe("notes")
    reader.begin_next()
    trial.proxy.wait_for(REQUEST_STREAM)
    trial.proxy.inject(b"\0\0\2ab")
    reply = reader.finish_next().must_be("end")
    expect(reply.text("kind") in ("protocol", "connection-lost"), f"it ends with `{reply.line}`")
