"""What must hold for streams of templates, which exist because a client asks for them."""

from daemon import expect
from proxy import REQUEST_STREAM
from trial import ALL, PATIENCE_MILLISECONDS, check, must_be, numbers

NO_STREAM, NO_EFFECT, TOO_MANY_STREAMS, OTHER_REQUEST = 1, 8, 47, 48


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
def pattern(trial):
    """a pattern has the events of the streams that there are and of later ones, each in order, and makes none"""
    trial.daemon.publish("rooms/a", "1")
    reader = trial.subscribe("rooms/*", **ALL)
    must_be(reader.take(1), ["1"])
    trial.daemon.publish("rooms/b", "2")
    must_be(reader.take(1), ["2"])
    trial.daemon.publish("rooms/a", "3")
    must_be(reader.take(1), ["3"])
    trial.subscribe("rooms/none/*").must_be_quiet()


@check()
def pattern_over_a_loss(trial):
    """over a cut connection a pattern misses no event of its streams"""
    trial.daemon.publish("rooms/a", "1")
    reader = trial.subscribe("rooms/*", **ALL, reconnect=True)
    must_be(reader.take(1), ["1"])
    for number in range(2, 6):
        trial.daemon.publish("rooms/" + "ab"[number % 2], str(number))
    seen = {reader.take(1)[0].data for _ in range(4)}
    trial.proxy.cut()
    trial.daemon.publish("rooms/c", "6")
    trial.daemon.publish("rooms/a", "7")
    while not {b"6", b"7"} <= seen:  # those of the last position may come again
        seen.add(reader.take(1)[0].data)


@check()
def pattern_over_a_kill(trial):
    """over a kill of the daemon a pattern misses no event of its streams"""
    reader = trial.subscribe("note*", trial.connect(trial.daemon.socket), **ALL, reconnect=True)
    trial.daemon.publish("notes", *numbers(20))
    seen = {event.data for event in reader.take(10)}
    trial.daemon.kill()
    trial.daemon.begin()
    trial.daemon.publish("notes", *numbers(20, 21))
    while len(seen) < 40:  # those of the last position may come again
        seen.add(reader.take(1)[0].data)


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


@check("answers")
def request_is_an_answer(trial):
    """a request has the name of its answer, the same for the same request, and its failure is that of the answer"""
    connection = trial.connect()
    for _ in range(2):
        expect(trial.request("answers/a", "hello", connection).must_be("made").data == b"answers/a", "another name")
    names = {trial.request("answers", "hello", connection).must_be("made").data for _ in range(2)}
    expect(len(names) == 2 and all(name.startswith(b"answers/") and len(name) == 34 for name in names), f"the names are {names}")
    trial.subscribe("answers/a", connection).must_end("source-failed")


@check("answers")
def request_of_others(trial):
    """a name that has another request, no template and no right are refused, and the connection goes on"""
    connection = trial.connect()
    trial.request("answers/a", "hello", connection).must_be("made")
    refused(trial.request("answers/a", "other", connection), "not-supported", OTHER_REQUEST, trial)
    refused(trial.request("nothing/a", "hello", connection), "not-found", NO_STREAM, trial)
    trial.request("unasked/a", "hello", connection).must_fail("access-denied")
    trial.request("answers/b", "hello", connection).must_be("made")
