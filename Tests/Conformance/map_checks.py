"""What must hold for readers of mapped streams."""

from daemon import expect
from proxy import CANCEL, REQUEST_STREAM
from trial import ALL, PATIENCE_MILLISECONDS, check, must_be, numbers


@check("map")
def mapped_events(trial):
    """a map has the stored events and new ones, with ids, times and data of a subscription"""
    values = [bytes(range(256)), b"y", b"x" * 5000, *(value.encode() for value in numbers(20))]
    trial.daemon.publish("roomy", *values[:-1])
    reader = trial.map("roomy", **ALL)
    mapped = reader.take(len(values) - 1)
    reader.must_be_quiet()
    trial.daemon.publish("roomy", values[-1])
    mapped.append(reader.event())
    stored = trial.subscribe("roomy", **ALL).take(len(values))
    expect([event.data for event in mapped] == values, "the data is another")
    for one, other in zip(mapped, stored):
        expect(one.words == other.words, f"the map has {one.line[:200]}, the subscription {other.line[:200]}")


@check("map")
def mapped_starts(trial):
    """a map begins where it is told: with the replay, the newest event, the next one, or after an id"""
    trial.daemon.publish("shared", *numbers(6))
    must_be(trial.map("shared").take(3), numbers(3, 4))
    must_be(trial.map("shared", from_="latest").take(1), numbers(1, 6))
    last = trial.stored("shared", 6)[1].id
    must_be(trial.map("shared", from_="id", since=last).take(4), numbers(4, 3))
    reader = trial.map("shared", from_="new")
    reader.must_be_quiet()
    trial.daemon.publish("shared", "7")
    must_be(reader.take(1), ["7"])


@check("map")
def mapped_refusals(trial):
    """a map is refused for a stream that is not mapped, does not exist, or does not admit this user"""
    for stream, kind, sentence in (("notes", "not-supported", "\"notes\" is not mapped"), ("nothing", "not-found", "no stream named"),
                                   ("mapped-private", "access-denied", "may not read")):
        reply, reader = trial.begin_map(stream)
        if reply.verb == "ok":
            reply = reader.next()
        reply.must_fail(kind, sentence)


@check("map")
def mapped_gap(trial):
    """a reader that was overtaken is told exactly how many events it has missed"""
    reader = trial.map("shared")
    trial.daemon.publish("shared", "1")
    last = reader.event()
    trial.daemon.publish("shared", *numbers(500, 2))
    taken = gaps = 0
    while last.data != b"501":
        event = reader.event()
        expect(event.id == last.id + event.gap + 1, f"a gap of {event.gap} lies between {last.id} and {event.id}")
        taken, gaps, last = taken + 1, gaps + event.gap, event
    expect(taken + gaps == 500 and gaps > 0, f"of 500 events {taken} came, and {gaps} were missed")


@check("map")
def mapped_lag_policies(trial):
    """a reader that was overtaken continues with the newest event (latest), or ends (fail)"""
    latest, failing = trial.map("shared", on_lag="latest"), trial.map("shared", on_lag="fail")
    trial.daemon.publish("shared", *numbers(500))
    event, taken = latest.event(), 0
    if event.data == b"1":  # it was taken in advance
        event, taken = latest.event(), 1
    expect((event.data, event.gap) == (b"500", 499 - taken), f"{event.line[:200]} is not the newest event")
    reply = failing.next()
    if reply.verb == "event":
        reply = failing.next()
    reply.must_fail("lagged")


@check("map")
def mapped_demand(trial):
    """a map asks upstream for events, and no more once it is closed"""
    reader = trial.map("shared")
    trial.proxy.wait_for(REQUEST_STREAM)
    expect(trial.proxy.granted() > 0, "the client has granted nothing")
    reader.close()
    trial.proxy.wait_for(CANCEL)


@check("map")
def mapped_end(trial):
    """a map of a stream that has ended has its events, and ends"""
    reader = trial.map("mapped-count")
    reader.take(5)
    reader.must_end("complete")


@check("map")
def mapped_reload(trial):
    """a map continues over reloads that replace its memory, without a gap"""
    reader = trial.map("roomy")
    trial.daemon.publish("roomy", *numbers(10))
    must_be(reader.take(4), numbers(4))
    for number in range(1, 3):
        trial.daemon.reload(f"events = {number}000 ", f"events = {number + 1}000 ")
        trial.daemon.wait_for_reload(number)
    must_be(reader.take(6), numbers(6, 5))
    trial.daemon.publish("roomy", *numbers(5, 11))
    must_be(reader.take(5), numbers(5, 11))


@check("map")
def mapped_removal(trial):
    """a map of a stream that is removed ends"""
    reader = trial.map("roomy", reconnect=True)
    trial.daemon.publish("roomy", "1")
    must_be(reader.take(1), ["1"])
    trial.daemon.reload_without("roomy")
    reply = reader.next()
    expect(reply.verb == "end" and reply.text("kind") in ("canceled", "not-found", "rejected"), f"expected an end, not `{reply.line[:200]}`")


@check("map")
def mapped_over_lost_connection(trial):
    """a map goes on while its connection is lost and restored"""
    reader = trial.map("roomy", reconnect=True)
    for number in range(1, 4):
        trial.proxy.cut()
        trial.daemon.publish("roomy", str(number))
        must_be(reader.take(1), [str(number)])
        # Some clients restore a connection only while they wait for an event.
        while trial.proxy.count(REQUEST_STREAM) <= number:
            reader.must_be_quiet()


@check("map")
def mapped_without_reconnect(trial):
    """a map that does not reconnect ends when its connection is lost, after the events that are there"""
    reader = trial.map("roomy")
    trial.daemon.publish("roomy", *numbers(3))
    trial.proxy.block()
    must_be(reader.take(3), numbers(3))
    reader.must_end("connection-lost")


@check("map")
def mapped_over_stop(trial):
    """a map continues after a stop of the daemon with the events of the next process"""
    reader = trial.map("roomy", reconnect=True)
    trial.daemon.publish("roomy", *numbers(3))
    must_be(reader.take(1), ["1"])
    trial.daemon.stop()
    trial.daemon.begin()
    trial.daemon.publish("roomy", "4")
    must_be(reader.take(2), numbers(2, 2))
    event = reader.next(PATIENCE_MILLISECONDS).must_be("event")
    expect(event.data == b"4", f"expected the event after the stop, not `{event.line[:200]}`")


@check("map")
def mapped_over_kill(trial):
    """a map continues after a kill of the daemon with the events of the next process, and says that events may be missing"""
    reader = trial.map("roomy", reconnect=True)
    trial.daemon.publish("roomy", *numbers(3))
    must_be(reader.take(2), numbers(2))
    trial.daemon.kill()
    trial.daemon.begin()
    trial.daemon.publish("roomy", "4")
    must_be(reader.take(1), ["3"])
    event = reader.next(PATIENCE_MILLISECONDS).must_be("event")
    expect(event.data == b"4", f"expected the event after the kill, not `{event.line[:200]}`")
    expect(event.gap == "unknown" or event.gap == 0, f"the gap is {event.gap}")
