"""What must hold for streams of templates, which exist because a client asks for them."""

from daemon import expect
from proxy import REQUEST_STREAM
from trial import PATIENCE_MILLISECONDS, check, must_be, numbers

NO_STREAM, NO_EFFECT, TOO_MANY_STREAMS = 1, 8, 47


def refused(reply, kind, reason, trial):
    reply.must_fail(kind)
    if "reasons" in trial.driver.capabilities:
        expect(reply.number("reason") == reason, f"expected the reason {reason}, not `{reply.line[:200]}`")


@check()
def subscription_makes_a_stream(trial):
    """a subscription makes a stream of a template, and has its first event"""
    reader = trial.subscribe("rooms/hall")
    reader.begin_next()
    trial.proxy.wait_for(REQUEST_STREAM)
    trial.daemon.publish("rooms/hall", "1")
    must_be([reader.finish_next().must_be("event")], ["1"])


@check()
def publisher_makes_a_stream(trial):
    """published values, also of a named publisher, make a stream of a template, and none is lost"""
    for stream, words in (("rooms/a", {}), ("rooms/b", {"name": "one"})):
        sender = trial.publisher(stream, **words)
        sender.publish(*numbers(5))
        sender.finish()
        must_be(trial.stored(stream, 5), numbers(5))


@check()
def stream_without_access(trial):
    """a client without the right makes no stream of a template"""
    trial.subscribe("closed/a").must_end("access-denied")
    sender = trial.publisher("closed/a")
    sender.publish("1")
    sender.must_fail("access-denied")


@check()
def all_streams_in_use(trial):
    """a stream that would exceed the limit of its template is refused while the others are in use"""
    reader = trial.subscribe("few/a", marker=True, from_="new")
    reader.marker()
    refused(trial.subscribe("few/b").next(PATIENCE_MILLISECONDS), "limit", TOO_MANY_STREAMS, trial)
    reader.must_be_quiet()


@check("commands")
def make_and_forget(trial):
    """a stream of a template exists from make to forget, which ends its subscriptions"""
    connection = trial.connect()
    for _ in range(2):
        trial.give("make", "rooms/hall", connection).must_be("ok")
    reader = trial.subscribe("rooms/hall", connection, marker=True, from_="new", reconnect=True)
    reader.marker()
    trial.give("forget", "rooms/hall", connection).must_be("ok")
    reader.must_end("canceled")
    refused(trial.give("forget", "rooms/hall", connection), "not-found", NO_STREAM, trial)
    trial.give("make", "rooms/hall", connection).must_be("ok")


@check("commands")
def refused_commands(trial):
    """a command that is refused has the reason, and the connection goes on"""
    connection = trial.connect()
    refused(trial.give("make", "other/a", connection), "not-found", NO_STREAM, trial)
    refused(trial.give("make", 'rooms/"a\\', connection), "not-found", NO_STREAM, trial)
    refused(trial.give("make", "notes", connection), "not-supported", NO_EFFECT, trial)
    refused(trial.give("forget", "notes", connection), "not-supported", NO_EFFECT, trial)
    reader = trial.subscribe("few/a", connection, marker=True, from_="new")
    reader.marker()
    refused(trial.give("make", "few/b", connection), "limit", TOO_MANY_STREAMS, trial)
    reader.must_be_quiet()


@check("commands")
def command_without_access(trial):
    """a client without the right makes no stream by a command"""
    trial.give("make", "closed/a", trial.connect()).must_fail("access-denied")
