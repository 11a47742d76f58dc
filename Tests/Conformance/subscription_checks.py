"""What must hold for the events of subscriptions, and for their ends."""

import json
import time

from daemon import expect
from proxy import CANCEL, ERROR, REQUEST_STREAM, encoded
from trial import ALL, check, must_be, numbers, page, quote

APPLICATION_ERROR = 0x201


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
    reader = trial.subscribe("notes", window=0, **ALL)
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
    idle = trial.subscribe("notes", connection, window=1, **ALL)
    reader = trial.subscribe("notes", connection, **ALL)
    trial.daemon.publish("notes", *numbers(100))
    must_be(reader.take(100), numbers(100))
    must_be(idle.take(100), numbers(100))


# Content


@check()
def data_is_unchanged(trial):
    """data has each byte as it was published, and events have their times"""
    before = time.time() * 1e6
    values = [bytes(range(256)), b"\0", "grüße €\n".encode()]
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
    connection = trial.connect()
    reader = trial.subscribe("notes", connection, from_="new")
    trial.settle(connection)
    reader.must_be_quiet()
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
    trial.daemon.publish("brief", "1")
    reader = trial.subscribe("brief", window=0, **ALL, **options)
    reader.request(1)
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
    trial.settle(connection)
    requests = trial.proxy.count(REQUEST_STREAM)
    reader = trial.subscribe("volatile", connection, reconnect=True)
    reader.begin_next()
    request = trial.proxy.wait_for(REQUEST_STREAM, requests + 1)
    trial.proxy.inject(encoded(request.stream, ERROR, 0, APPLICATION_ERROR.to_bytes(4, "big") + b"no such symbol"))
    reader.finish_next().must_fail("source-failed", "no such symbol")
    trial.daemon.publish("notes", "1")
    must_be([other.event()], ["1"])


@check()
def stop_of_the_daemon(trial):
    """a stop of the daemon ends a subscription that does not reconnect, after its events"""
    trial.daemon.publish("notes", "1")
    reader = trial.subscribe("notes")
    must_be([reader.event()], ["1"])
    trial.daemon.stop()
    reader.must_end("canceled", "streamd is stopping")


@check()
def removed_stream(trial):
    """a stream that is removed ends its subscriptions, although they reconnect"""
    connection = trial.connect()
    readers = [trial.subscribe("volatile", connection), trial.subscribe("volatile", connection, reconnect=True)]
    trial.settle(connection)
    trial.daemon.reload_without("volatile")
    readers[0].must_end("canceled", "")
    reply = readers[1].next().must_be("end")
    expect(reply.text("kind") in ("canceled", "not-found", "rejected"), f"it ends with `{reply.line}`")


@check()
def cancellation(trial):
    """a closed subscription is cancelled at the daemon, and its connection continues"""
    connection = trial.connect()
    reader = trial.subscribe("notes", connection)
    trial.settle(connection)
    reader.close()
    trial.proxy.wait_for(CANCEL)
    trial.daemon.publish("notes", "1")
    must_be([trial.subscribe("notes", connection).event()], ["1"])
