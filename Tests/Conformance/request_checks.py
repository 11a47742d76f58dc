"""What must hold for refusals, requests for one value, and the connection itself."""

import os
import time

from daemon import expect
from proxy import CANCEL, KEEPALIVE, REQUEST_RESPONSE, REQUEST_STREAM, encoded
from trial import ALL, check, must_be, numbers

RESPOND = 0x80


# Refusals


def refused(trial, stream, kind, sentence, **options):
    """The daemon refuses a subscription, which the client does not try again, and another one of its connection continues."""
    connection = trial.connect()
    other = trial.subscribe("volatile", connection, **ALL)
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


@check("token")
def token_of_a_connection(trial):
    """a client with a token may do what the token may; without one or with another it is refused, and does not try again"""
    trial.daemon.stop()
    address = trial.daemon.begin_with_token("not-to-be-guessed-0123456789")
    reader = trial.subscribe("secret", trial.connect(address, token="not-to-be-guessed-0123456789"), **ALL)
    trial.daemon.publish("secret", *numbers(3))
    must_be(reader.take(3), numbers(3))
    trial.subscribe("secret", trial.connect(address)).must_end("access-denied")
    number = trial.handle()
    reply = trial.driver.ask("connect", connection=number, address=address, token="not-to-be-guessed-012345678x")
    if reply.verb == "ok":
        reply = trial.subscribe("secret", number, reconnect=True).next()
    # A refused connection is of either kind.
    reply.must_fail("connection-lost" if reply.text("kind") == "connection-lost" else "access-denied", "the token is not valid")


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
    trial.settle(connection)
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
