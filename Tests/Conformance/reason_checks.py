"""What must hold for the reasons of errors: programs decide by them, and never by sentences."""

from daemon import expect
from proxy import REQUEST_CHANNEL, REQUEST_RESPONSE, REQUEST_STREAM
from trial import ALL, PATIENCE_MILLISECONDS, check, must_be, numbers

CANCELED = 0x203
RESTARTING, REMOVED = 29, 33


def cancel(trial, request, reason, sentence):
    """Ends a request as a daemon does: with the reason, if the client knows reasons."""
    knows = any(frame.announces_reasons for frame in trial.proxy.sent)
    trial.proxy.cancel(request, CANCELED << 16 | reason if knows else CANCELED, sentence)


@check()
def named_over_a_restart_that_cancels(trial):
    """a named publisher whose request a restart cancels sends its values again"""
    sender = trial.publisher("notes", name="one")
    sender.publish("1")
    request = trial.proxy.wait_for(REQUEST_CHANNEL)
    if "confirmed" in trial.driver.capabilities:
        sender.finish()  # such a client may be idle until it is asked
    trial.stored("notes", 1)
    cancel(trial, request, RESTARTING, "streamd restarts before the stream has stored all values")
    sender.publish(*numbers(5, 2))
    sender.finish()
    must_be(trial.stored("notes", 6), numbers(6))


@check()
def subscription_over_a_restart_that_cancels(trial):
    """a subscription that reconnects continues after its last event if a restart cancels it"""
    trial.daemon.publish("notes", *numbers(3))
    reader = trial.subscribe("notes", **ALL, reconnect=True)
    events = reader.take(3)
    cancel(trial, trial.proxy.wait_for(REQUEST_STREAM), RESTARTING, "streamd is restarting")
    trial.daemon.publish("notes", *numbers(3, 4))
    must_be(events + reader.take(3), numbers(6))


@check("map")
def map_over_a_restart_that_cancels(trial):
    """a map that reconnects is asked for again if a restart cancels its demand"""
    reader = trial.map("roomy", reconnect=True)
    trial.daemon.publish("roomy", "1")
    events = reader.take(1)
    request = trial.proxy.wait_for(REQUEST_STREAM)
    asked = trial.proxy.count(REQUEST_RESPONSE)
    cancel(trial, request, RESTARTING, "streamd restarts")
    reader.begin_next()
    trial.proxy.wait_for(REQUEST_RESPONSE, asked + 1)
    trial.daemon.publish("roomy", "2")
    must_be(events + [reader.finish_next().must_be("event")], numbers(2))


@check()
def removed_stream(trial):
    """a subscription that reconnects ends if its stream was removed, also under another sentence"""
    reader = trial.subscribe("notes", **ALL, reconnect=True)
    knows = trial.proxy.wait_for(REQUEST_STREAM) and any(frame.announces_reasons for frame in trial.proxy.sent)
    trial.daemon.publish("notes", "1")
    reader.take(1)
    cancel(trial, trial.proxy.wait_for(REQUEST_STREAM), REMOVED, "a text" if knows else '"notes" is no longer served')
    reply = reader.next()
    expect(reply.verb == "end" and reply.text("kind") in ("canceled", "not-found", "rejected"), f"expected an end, not `{reply.line[:200]}`")


@check("reasons")
def announcement(trial):
    """a client announces in its SETUP that it knows reasons"""
    reader = trial.subscribe("notes")
    trial.proxy.wait_for(REQUEST_STREAM)
    expect(trial.proxy.sent[0].announces_reasons, "the data of SETUP do not announce it")
    reader.close()


@check("reasons")
def numbers_of_reasons(trial):
    """an error has the number of its reason"""
    for stream, words, reason in (("nothing", {}, 1), ("private", {}, 2), ("notes", {"from_": "id", "since": 99_999_999_999_999_999}, 18)):
        reply = trial.subscribe(stream, **words).next(PATIENCE_MILLISECONDS)
        expect(reply.number("reason") == reason, f"expected the reason {reason}, not `{reply.line[:200]}`")
    for stream, reason in (("guarded", 3), ("count", 5)):
        sender = trial.publisher(stream)
        sender.publish("1")
        reply = trial.driver.ask("finish", publisher=sender.number, wait=str(PATIENCE_MILLISECONDS))
        expect(reply.number("reason") == reason, f"expected the reason {reason}, not `{reply.line[:200]}`")


@check("reasons")
def unknown_reason(trial):
    """an error with a reason of a later daemon is what its code of RSocket says"""
    reader = trial.subscribe("notes", reconnect=True)
    request = trial.proxy.wait_for(REQUEST_STREAM)
    trial.daemon.publish("notes", "1")
    reader.take(1)
    trial.proxy.cancel(request, 0x202 << 16 | 9999, "a text")
    reader.must_end("limit", "a text")
