"""What must hold for publishers."""

import os

from daemon import expect
from proxy import PAYLOAD, REQUEST_CHANNEL
from trial import ALL, check, must_be, numbers, page


@check()
def publishes(trial):
    """values become events, unchanged and in their order; an empty one is confirmed, and no event"""
    sender = trial.publisher("notes")
    values = [b"", bytes(range(256)), b"", b"grusse"]
    sender.publish(*values)
    sender.finish()
    expect([event.data for event in trial.stored("notes", 2)] == [values[1], values[3]], "the events are others")


@check()
def publishes_many(trial):
    """more values than the daemon's credit are all in the stream after the end"""
    sender = trial.publisher("notes")
    sender.publish(*numbers(400))
    sender.finish()
    must_be(trial.stored("notes", 400), numbers(400))


@check()
def publishes_large(trial):
    """a value of 1 MB becomes one event"""
    value = page(1_000_000)
    sender = trial.publisher("pages")
    sender.publish(value, b"next")
    sender.finish()
    expect([event.data for event in trial.stored("pages", 2)] == [value, b"next"], "the events are others")


@check()
def publishes_nothing(trial):
    """a publisher without values ends without an error"""
    trial.publisher("notes").finish()


@check("confirmed")
def confirms(trial):
    """an unnamed publisher knows how many of its values are in the stream"""
    trial.daemon.publish("notes", "earlier")
    sender = trial.publisher("notes")
    sender.publish(*numbers(5))
    sender.finish()
    expect(sender.confirmed() == 5, f"{sender.confirmed()} values are confirmed, not 5")


@check()
def holds_back(trial):
    """a stream that drops nothing holds its publisher back, and has every value"""
    connection = trial.connect()
    reader = trial.subscribe("lossless", connection, window=1)
    trial.settle(connection)
    sender = trial.publisher("lossless", connection)
    sender.publish(*numbers(50))
    must_be(reader.take(50), numbers(50))
    sender.finish()


def failed(trial, stream, kind, sentence, values=("1",), **words):
    """The reason comes with the end, or already with a value."""
    sender = trial.publisher(stream, **words)
    for value in values:
        reply = trial.driver.ask("publish", publisher=sender.number, data=value)
        if reply.verb != "ok":
            return reply.must_fail(kind, sentence)
    sender.must_fail(kind, sentence)


@check()
def unknown_stream(trial):
    """values for a stream that does not exist are refused"""
    failed(trial, "nothing", "not-found", 'no stream named "nothing"')


@check()
def no_access(trial):
    """values without access are refused"""
    failed(trial, "guarded", "access-denied", f'uid {os.geteuid()} may not write "guarded"')


@check()
def no_publishers(trial):
    """values for a stream with a source of its own are refused"""
    failed(trial, "count", "not-supported", '"count" does not accept values')


@check()
def named_is_refused(trial):
    """a named publisher is refused as one without a name is, and does not try again"""
    failed(trial, "nothing", "not-found", 'no stream named "nothing"', name="one")
    failed(trial, "guarded", "access-denied", "may not write", name="one")


@check()
def long_name(trial):
    """a publisher's name of 48 bytes is valid, and one of 49 is not"""
    sender = trial.publisher("notes", name="n" * 48)
    sender.publish("1")
    sender.finish()
    number, connection = trial.handle(), trial.connect()
    reply = trial.driver.ask("publisher", publisher=number, connection=connection, stream="notes", name="n" * 49)
    if reply.verb == "ok":
        trial.driver.ask("publish", publisher=number, data="2")
        reply = trial.driver.ask("finish", publisher=number, wait="30000")
    reply.must_fail("invalid")


@check()
def too_large(trial):
    """a value that is too large is named by its number, and the values before it are in the stream"""
    failed(trial, "small", "invalid", "value 3: ", ["1", "2", "x" * 100_000, "4"])
    must_be(trial.stored("small", 2), numbers(2))


@check()
def too_large_named(trial):
    """a value of a named publisher that is too large is named by its number"""
    failed(trial, "small", "invalid", "value 3: ", ["1", "2", "x" * 100_000, "4"], name="one")
    must_be(trial.stored("small", 2), numbers(2))


@check()
def unnamed_over_a_cut(trial):
    """a publisher without a name ends with its connection"""
    sender = trial.publisher("notes")
    trial.proxy.cut_within(5, "client")
    for value in numbers(20):
        reply = trial.driver.ask("publish", publisher=sender.number, data=value)
        if reply.verb != "ok":
            return reply.must_fail("connection-lost")
    sender.must_fail("connection-lost")


@check()
def named_over_a_cut(trial):
    """over a connection that is cut within a value, each value of a named publisher is in the stream once"""
    trial.proxy.cut_within(30, "client")
    sender = trial.publisher("notes", name="one")
    sender.publish(*numbers(100))
    trial.proxy.wait_for(REQUEST_CHANNEL)
    sender.finish()
    must_be(trial.stored("notes", 100), numbers(100))


@check()
def named_over_a_lost_confirmation(trial):
    """if the confirmations are lost, no value is in the stream twice"""
    trial.proxy.cut_within(2)
    sender = trial.publisher("notes", name="one")
    sender.publish(*numbers(100))
    sender.finish()
    must_be(trial.stored("notes", 100), numbers(100))


@check()
def named_over_a_kill(trial):
    """over kills of the daemon, each value of a named publisher is in the stream once"""
    connection = trial.connect(trial.daemon.socket)
    trial.settle(connection)  # a client that was never connected does not try again
    sender = trial.publisher("notes", connection, name="one")
    for turn in range(2):
        sender.publish(*numbers(50, turn * 50 + 1))
        trial.daemon.kill()
        trial.daemon.begin()
    sender.finish()
    must_be(trial.stored("notes", 100), numbers(100))


@check()
def named_over_a_loss_of_events(trial):
    """over a kill that the stream does not survive, a named publisher continues, or ends because values may be lost or repeated"""
    connection = trial.connect(trial.daemon.socket)
    sender = trial.publisher("volatile", connection, name="one")
    sender.publish(*numbers(5))
    must_be(trial.subscribe("volatile", connection, **ALL).take(5), numbers(5))
    trial.daemon.kill()
    trial.daemon.begin()
    sender.publish(*numbers(5, 6))
    reply = trial.driver.ask("finish", publisher=sender.number, wait="30000")
    if reply.verb != "ok":
        return reply.must_fail("canceled", "discarded the name")
    reader, found = trial.subscribe("volatile", trial.connect(trial.daemon.socket), marker=True, **ALL), []
    while (reply := reader.next()).verb == "event":
        found.append(reply.data.decode())
    again = found[:-5]  # those whose confirmation the client does not have
    expect(found[-5:] == numbers(5, 6) and again == numbers(5)[5 - len(again):], f"the events are {found}")


@check("confirmed")
def numbers_continue(trial):
    """another process with the name of a publisher continues after the last number"""
    sender = trial.publisher("notes", name="one")
    sender.publish(*numbers(5))
    sender.finish()
    trial.another_process()
    sender = trial.publisher("notes", name="one")
    sender.finish()
    expect(sender.confirmed() == 5, f"{sender.confirmed()} values are confirmed, not 5")
    sender.publish("6", "7")
    sender.finish()
    expect(sender.confirmed() == 7, f"{sender.confirmed()} values are confirmed, not 7")
    must_be(trial.stored("notes", 7), numbers(7))


@check("first")
def known_values_are_skipped(trial):
    """another process that publishes values of known numbers again leaves out those that are in the stream"""
    sender = trial.publisher("notes", name="one")
    sender.publish(*numbers(5))
    sender.finish()
    trial.another_process()
    sender = trial.publisher("notes", name="one", first="4")
    sender.publish(*numbers(4, 4))
    sender.finish()
    must_be(trial.stored("notes", 7), numbers(7))
    expect(trial.proxy.count(PAYLOAD) <= 11, f"the client has sent {trial.proxy.count(PAYLOAD)} payloads for 7 values")


@check()
def names_are_independent(trial):
    """publishers with different names on one connection do not skip each other's values"""
    connection = trial.connect()
    one, other = trial.publisher("notes", connection, name="one"), trial.publisher("notes", connection, name="two")
    one.publish("1")
    one.finish()
    other.publish("2")
    other.finish()
    must_be(trial.stored("notes", 2), numbers(2))
