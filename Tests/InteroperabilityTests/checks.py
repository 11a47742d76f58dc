"""The rules of docs/WIRE.md, checked with an independent client. Each check has a new daemon."""

import asyncio
import json
import os
import time
from datetime import datetime, timedelta, timezone

from daemon import LONG_NAME, MAX_REQUESTS, Web, expect
from foreign import COMPLETE, ROUTING, TEXT, Inbox, connected, error_of
from rsocket.extensions.helpers import authenticate_bearer, composite, metadata_item, route
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.frame import HEADER_LENGTH, ErrorFrame, KeepAliveFrame, LeaseFrame, PayloadFrame

UNSUPPORTED_SETUP = 0x002
CONNECTION_CLOSE = 0x102
REJECTED = 0x202
CANCELED = 0x203
INVALID = 0x204
LAGGED = 0x301

# This number of round trips without an event is silence, after another client has received the event.
SILENCE = 5


def expect_equal(found, wanted, what):
    expect(found == wanted, f"{what}: {found!r}, not {wanted!r}")


def expect_rising(events):
    ids = [event.id for event in events]
    expect_equal(ids, list(range(ids[0], ids[0] + len(ids))), "ids")


async def stream_is_replayed_and_completes(daemon):
    """request_stream by composite metadata: events in order, ids that rise by one, then COMPLETE"""
    async with connected(daemon) as client:
        live = client.subscribe("count")
        events = await live.events(5)
        expect_equal(await live.end(), COMPLETE, "the end")
        replayed = client.subscribe("count")
        again = await replayed.events(5)
        expect_equal(await replayed.end(), COMPLETE, "the end of the replay")
        expect_rising(events)
        said, repeated = ([(event.id, event.data) for event in some] for some in (events, again))
        expect_equal(repeated, said, "the replay")


async def credit_is_kept_to(daemon):
    """an initial request-n of 3 returns 3 events and no more, 2 more return 2, and COMPLETE requires none"""
    async with connected(daemon) as client:
        subscriber = client.subscribe("count", credit=3)
        first = await subscriber.events(3)
        other = client.subscribe("count")
        everything = await other.events(5)
        expect_equal(await other.end(), COMPLETE, "the end")
        await client.round_trip(SILENCE)
        expect(subscriber.is_empty, "a fourth event came without credit")
        subscriber.subscription.request(2)
        rest = await subscriber.events(2)
        expect_equal(await subscriber.end(), COMPLETE, "the end")
        expect_equal([event.id for event in first + rest], [event.id for event in everything], "ids")


async def composite_metadata_may_hold_more(daemon):
    """composite metadata may have entries of other types, well-known or not, around the route"""
    async with connected(daemon) as client:
        metadata = composite(
            authenticate_bearer("token"), metadata_item(b"x" * 300, b"application/x.unheard-of"),
            route("count", "second tag"), metadata_item(b"{}", WellKnownMimeTypes.APPLICATION_JSON))
        expect_rising(await client.subscribe(metadata=metadata).events(5))


async def routing_metadata_names_the_stream(daemon):
    """the metadata MIME type may be the routing one"""
    async with connected(daemon, ROUTING) as client:
        expect_rising(await client.subscribe("count").events(5))


async def text_metadata_names_the_stream(daemon):
    """the metadata MIME type may be text/plain"""
    async with connected(daemon, TEXT) as client:
        expect_rising(await client.subscribe("count").events(5))


async def other_metadata_types_are_refused(daemon):
    """any other metadata MIME type, including the library's default, is UNSUPPORTED_SETUP"""
    async with connected(daemon, TEXT) as client:  # others are not disturbed
        async with connected(daemon, WellKnownMimeTypes.APPLICATION_JSON) as refused:
            await refused.handler.closed.wait()
            [(code, said)] = refused.handler.errors
            expect_equal(code, UNSUPPORTED_SETUP, "the code")
            expect(said.startswith('metadata MIME type "application/json" is not read here'), f"it said: {said}")
        expect_rising(await client.subscribe("count").events(5))


async def metadata_carries_id_and_time(daemon):
    """metadata is 16 bytes: the event's id and time"""
    async with connected(daemon) as client:
        began = time.time()
        events = await client.subscribe("ticks", {"from": "new"}).events(3)
        expect_rising(events)
        times = [event.time / 1e6 for event in events]
        expect(all(began - 60 <= at <= time.time() + 60 for at in times), f"times {times}, and now it is {time.time()}")


async def ids_can_be_left_out(daemon):
    """the option ids: false omits the metadata, and affects no other client"""
    async with connected(daemon) as client:
        bare = client.subscribe("count", {"ids": False})
        full = client.subscribe("count")
        events = await bare.events(5)
        expect_equal({event.metadata for event in events}, {b""}, "metadata")
        expect_equal([event.data for event in await full.events(5)], [event.data for event in events], "data")
        of_bare = [frame for frame in client.frames if isinstance(frame, PayloadFrame) and frame.stream_id == bare.id]
        expect(not any(frame.flags_metadata for frame in of_bare), "a frame has the metadata flag")


async def every_start_is_honoured(daemon):
    """the option from: replay, latest, an id, a time, a duration, new"""
    async with connected(daemon) as client:
        events = await client.subscribe("count").events(5)

        async def ids_from(start, count):
            subscriber = client.subscribe("count", {"from": start})
            found = [event.id for event in await subscriber.events(count)]
            expect_equal(await subscriber.end(), COMPLETE, f"the end from {start}")
            return found

        ids = [event.id for event in events]
        hour_ago = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat(timespec="seconds")
        for start, wanted in [
            ("replay", ids), ("latest", ids[-1:]), (ids[1], ids[2:]), (ids[-1], []), ("-1h", ids), (hour_ago, ids),
            ("new", []),
        ]:
            expect_equal(await ids_from(start, len(wanted)), wanted, f"ids from {start}")


async def a_value_can_be_asked_for(daemon):
    """request_response returns the first event if there is none yet, later the newest"""
    async with connected(daemon) as client:
        first = await client.get("ticks", {"ids": False})
        expect_equal(json.loads(bytes(first.data))["tick"], 1, "the first tick")
        last = (await client.subscribe("count").events(5))[-1]
        newest = await client.get("count")
        expect_equal(bytes(newest.data), last.data, "the newest")
        expect_equal(len(newest.metadata), 16, "bytes of metadata")


async def cancel_ends_a_subscription(daemon):
    """after CANCEL no event arrives, other requests continue, and the catalogue has one subscriber less"""
    async with connected(daemon) as client:
        leaving, staying = client.subscribe("ticks"), client.subscribe("ticks")
        await leaving.events(3)
        leaving.subscription.cancel()
        await client.round_trip()
        heard = len(client.frames)
        await staying.events(20)
        late = [frame for frame in client.frames[heard:] if frame.stream_id == leaving.id]
        expect(not late, f"{len(late)} frames came after CANCEL")
        await expect_subscribers(client, "ticks", 1)


async def cancel_ends_a_request_for_a_value(daemon):
    """a request for a value that does not exist can be cancelled"""
    async with connected(daemon) as client:
        request = client.get("never")
        await client.round_trip()
        await expect_subscribers(client, "never", 1)
        request.cancel()
        await asyncio.wait([request])
        await expect_subscribers(client, "never", 0)


async def subscribers(client, name):
    catalogue = json.loads(bytes((await client.get("$streams", {"ids": False})).data))
    return next(stream["subscribers"] for stream in catalogue if stream["name"] == name)


async def expect_subscribers(client, name, count):
    """Waits until the catalogue has this number; it may be a quarter of a second old."""
    for _ in range(40):
        if await subscribers(client, name) == count:
            return
        await asyncio.sleep(0.25)
    expect_equal(await subscribers(client, name), count, "subscribers")


async def unknown_names_are_rejected(daemon):
    """a request of any kind for a stream that does not exist is REJECTED with the name"""
    async with connected(daemon) as client:
        wanted = (REJECTED, 'no stream named "nowhere"')
        expect_equal(await client.subscribe("nowhere").error(), wanted, "the error of a subscription")
        expect_equal(await error_of(client.get("nowhere")), wanted, "the error of a request for a value")
        expect_rising(await client.subscribe("count").events(5))


async def private_streams_are_rejected(daemon):
    """a request for a stream that the user may not read is REJECTED with both names"""
    async with connected(daemon) as client:
        wanted = (REJECTED, f'uid {os.geteuid()} may not read "private"')
        expect_equal(await client.subscribe("private").error(), wanted, "the error")


async def mistakes_are_invalid(daemon):
    """malformed options, no name, a future id, a demand of 0: INVALID, for that request only"""
    async with connected(daemon) as client:
        bystander = client.subscribe("ticks")
        for options, sentence in [
            ({"form": 1}, 'unknown option "form"'), (b"{", "options must be a JSON object"),
            ({"from": "yesterday"}, 'option "from" must be'), ({"from": 2**63}, f"no event has the id {2**63} yet"),
        ]:
            code, said = await client.subscribe("count", options).error()
            expect_equal(code, INVALID, f"the code for {options}")
            expect(said.startswith(sentence), f"for {options} it said: {said}")
        nameless = client.subscribe(metadata=composite(authenticate_bearer("token")))
        expect_equal(await nameless.error(), (INVALID, "the composite metadata has no routing entry"), "the error")
        subscriber = client.subscribe("count", credit=1)
        await subscriber.events(1)
        subscriber.subscription.request(0)
        expect_equal((await subscriber.error())[0], INVALID, "the code for a demand of 0")
        expect_rising(await bystander.events(20))
        expect(not client.handler.errors, f"the connection was told {client.handler.errors}")


async def lag_can_be_an_error(daemon):
    """with on_lag fail a subscription ends with the number of lost events; others skip, and their ids show the gap"""
    async with connected(daemon) as client:
        failing = client.subscribe("brief", {"on_lag": "fail"}, credit=1)
        skipping = client.subscribe("brief", {"on_lag": "skip"}, credit=1)
        await failing.events(1)
        before = (await skipping.events(1))[0]
        await client.subscribe("brief", {"from": "new"}).events(20)
        failing.subscription.request(1)
        code, sentence = await failing.error()
        expect_equal(code, LAGGED, "the code")
        expect(sentence.startswith("lagged: ") and sentence.endswith(" events lost"), f"it said: {sentence}")
        skipping.subscription.request(1)
        after = (await skipping.events(1))[0]
        expect(after.id > before.id + 10, f"from {before.id} to {after.id} is no gap")


async def keepalives_are_echoed(daemon):
    """KEEPALIVE is echoed with its data and without the respond flag, also between events"""
    async with connected(daemon, keep_alive_period=timedelta(milliseconds=5)) as client:
        await client.subscribe("ticks").events(20)
        await client.round_trip(20)
        while not any(frame.data == b"" for frame in client.frames if isinstance(frame, KeepAliveFrame)):
            await client.round_trip()  # until one that the library sent by itself came back
        echoes = [frame for frame in client.frames if isinstance(frame, KeepAliveFrame)]
        expect(not any(frame.flags_respond for frame in echoes), "an echo asks for an echo")
        expect_equal(
            [bytes(frame.data) for frame in echoes if frame.data][:20],
            [f"round trip {number}".encode() for number in range(1, 21)], "data")


async def silent_clients_are_closed(daemon):
    """a client that is silent for its maximum lifetime is disconnected and logged"""
    async with connected(daemon, max_lifetime_period=timedelta(seconds=1)) as client:
        await client.handler.closed.wait()
    daemon.stop()
    expect("silent for its maximum lifetime" in daemon.log, "the log does not say so")


async def leases_are_honoured(daemon):
    """a client with leases receives one at once, and can send requests under it"""
    async with connected(daemon, honor_lease=True) as client:
        value = client.get("ticks")  # kept back by the library until it has a lease
        expect_rising(await client.subscribe("ticks").events(5))
        expect_equal(len((await value).metadata), 16, "bytes of metadata")
        lease = client.frames[0]
        expect(isinstance(lease, LeaseFrame), f"the first frame is {lease}")
        expect_equal((lease.time_to_live, lease.number_of_requests), (30_000, MAX_REQUESTS), "the lease")


async def large_events_are_reassembled(daemon):
    """an event of 300 kB arrives in fragments of at most 64 KiB, for one credit, and the library reassembles it"""
    async with connected(daemon) as client:
        subscriber = client.subscribe("page", credit=1)
        [event] = await subscriber.events(1)
        expect(event.data == Web.PAGE, f"{len(event.data)} bytes that are not the page")
        expect(event.id and event.time, "it has no id")
        sizes = [content_byte_count(frame) for frame in client.frames if isinstance(frame, PayloadFrame)]
        expect_equal((len(sizes), max(sizes), sum(sizes)), (5, 64 << 10, len(Web.PAGE) + 16), "fragments")
        value = await client.get("page", {"ids": False})
        expect(bytes(value.data) == Web.PAGE, f"{len(value.data)} bytes as a single value")


def content_byte_count(frame):
    """The bytes of metadata and data of one frame."""
    return frame.length - HEADER_LENGTH - (3 if frame.flags_metadata else 0)


async def fragmented_requests_are_reassembled(daemon):
    """requests with fragmented metadata and data are served"""
    async with connected(daemon, fragment_size_bytes=64) as client:
        options = json.dumps({"ids": False, "from": "new"}).encode() + b" " * 1000
        events = await client.subscribe(LONG_NAME, options).events(3)
        expect_equal({event.metadata for event in events}, {b""}, "metadata")
        value = await client.get(LONG_NAME)
        expect_equal(len(value.metadata), 16, "bytes of metadata")


async def pushes_are_ignored(daemon):
    """fire-and-forget and metadata push are accepted without a reply"""
    async with connected(daemon) as client:
        for name in ["count", "nowhere", "guarded"]:
            await client.fire_and_forget(client.payload(name, b"anything"))
        await client.metadata_push(composite(route("count")))
        await client.round_trip(SILENCE)
        answers = [frame for frame in client.frames if not isinstance(frame, KeepAliveFrame)]
        expect(not answers, f"answered with {[str(frame) for frame in answers]}")
        expect_rising(await client.subscribe("count").events(5))


async def channels_are_rejected(daemon):
    """request_channel to a stream without publish is REJECTED with the stream's name"""
    async with connected(daemon) as client:
        channel = Inbox.of(client.request_channel(client.payload("count", b"a value")))
        expect_equal(await channel.error(), (REJECTED, 'with the source timer, not publish, "count" does not accept values'), "the error")
        expect_rising(await client.subscribe("count").events(5))


async def values_are_published_in_order(daemon):
    """request_channel publishes: the request's data, then 2,000 values within the credit, then COMPLETE is confirmed"""
    async with connected(daemon) as client:
        values = [f"value {number}".encode() for number in range(2001)]
        channel = client.publish("notes", values)
        reader = client.subscribe("notes", {"from": "replay"})
        expect_equal(await channel.end(), COMPLETE, "the end")
        events = await reader.events(len(values))
        expect_equal([event.data for event in events], values, "the events")
        expect_rising(events)


async def publishers_share_a_stream(daemon):
    """several publishers of several clients publish at the same time"""
    async with connected(daemon) as one, connected(daemon) as other:
        batches = [[f"{name} {number}".encode() for number in range(300)] for name in "abc"]
        channels = [client.publish("notes", batch) for client, batch in zip([one, one, other], batches)]
        for channel in channels:
            expect_equal(await channel.end(), COMPLETE, "the end")
        events = [event.data for event in await one.subscribe("notes", {"from": "replay"}).events(900)]
        for batch in batches:
            expect_equal([data for data in events if data[:1] == batch[0][:1]], batch, "the values of one")


async def a_lossless_stream_holds_its_publisher(daemon):
    """a publisher to a stream that drops nothing waits for the subscriber, which receives everything"""
    async with connected(daemon) as client:
        slow = client.subscribe("work", credit=1)
        await client.round_trip()
        values = [str(number).encode() for number in range(100)]
        channel = client.publish("work", values)
        events = await slow.events(1)
        await client.round_trip(SILENCE)
        expect(channel.is_empty, "the publisher was told that all is in")
        slow.subscription.request(1000)
        events += await slow.events(99)
        expect_equal([event.data for event in events], values, "the events")
        expect_equal(await channel.end(), COMPLETE, "the end")


async def values_of_many_fragments_are_published(daemon):
    """a fragmented value is one event, for one credit"""
    async with connected(daemon, fragment_size_bytes=1024) as client:
        values = [bytes([number]) * 10_000 for number in range(3)]
        expect_equal(await client.publish("notes", values).end(), COMPLETE, "the end")
        events = await client.subscribe("notes", {"from": "replay"}).events(3)
        expect_equal([event.data for event in events], values, "the events")


async def a_publisher_may_give_up(daemon):
    """values sent before CANCEL enter the stream"""
    async with connected(daemon) as client:
        channel = client.publish("notes", [b"first"], stays_open=True)
        reader = client.subscribe("notes", {"from": "replay"})
        await reader.events(1)
        channel.subscription.cancel()
        await client.round_trip(SILENCE)
        expect(channel.is_empty, "something came after CANCEL")
        await client.fire_and_forget(client.payload("notes", b"tossed"))
        expect_equal([event.data for event in await reader.events(1)], [b"tossed"], "the next event")


async def strangers_may_not_publish(daemon):
    """a publisher without write access is REJECTED"""
    async with connected(daemon) as client:
        wanted = (REJECTED, f'uid {os.geteuid()} may not write "guarded"; to admit it, add "uid:{os.geteuid()}" to its write')
        expect_equal(await client.publish("guarded", [b"a value"]).error(), wanted, "the error")


async def a_filter_counts_what_it_leaves_out(daemon):
    """the option where: events that fit, and before each the number of the others; a mistake is INVALID"""
    async with connected(daemon) as client:
        values = [b'{"symbol":"MSFT","price":1}', b'{"symbol":"AAPL","price":150}', b"no JSON", b'{"symbol":"AAPL"}',
                  b'{"symbol":"AAPL","price":199.5}']
        expect_equal(await client.publish("notes", values).end(), COMPLETE, "the end")
        everything = await client.subscribe("notes").events(5)
        filtered = client.subscribe("notes", {"where": {"/symbol": "AAPL", "/price": {"ge": 150, "lt": 200}}}, credit=2)
        events = await filtered.events(2)
        expect_equal([event.data for event in events], [values[1], values[4]], "the events")
        expect_equal([event.id for event in events], [everything[1].id, everything[4].id], "ids")
        expect_equal([int.from_bytes(event.rest) for event in events], [1, 2], "the numbers of events left out")
        code, _ = await client.subscribe("notes", {"where": {"/symbol": []}}).error()
        expect_equal(code, INVALID, "the code")


async def a_marker_follows_the_newest_event(daemon):
    """the option marker: after the last event a payload without data, with the kind 1 and the id of that event"""
    async with connected(daemon) as client:
        expect_equal(await client.publish("notes", [b"one", b"two"]).end(), COMPLETE, "the end")
        subscriber = client.subscribe("notes", {"marker": True}, credit=2)
        events = await subscriber.events(2)
        expect_equal([(event.data, event.rest) for event in events], [(b"one", b"\0"), (b"two", b"\0")], "the events")
        await client.round_trip(SILENCE)
        expect(subscriber.is_empty, "a marker came without credit")
        subscriber.subscription.request(1)
        [marker] = await subscriber.events(1)
        expect_equal((marker.data, marker.rest, marker.id), (b"", b"\1", events[1].id), "the marker")


async def requests_share_a_connection(daemon):
    """requests run in parallel; one beyond the limit is REJECTED, and accepted after another has ended"""
    async with connected(daemon) as client:
        subscribers = [client.subscribe("ticks") for _ in range(MAX_REQUESTS)]
        for events in await asyncio.gather(*(subscriber.events(10) for subscriber in subscribers)):
            expect_rising(events)
        code, sentence = await client.subscribe("ticks").error()
        expect_equal((code, str(MAX_REQUESTS) in sentence), (REJECTED, True), "code, and whether the limit is named")
        subscribers[0].subscription.cancel()
        value = client.get("ticks")
        for events in await asyncio.gather(*(subscriber.events(10) for subscriber in subscribers[1:])):
            expect_rising(events)
        expect_equal(len((await value).metadata), 16, "bytes of metadata")


async def catalogue_lists_the_streams(daemon):
    """$streams and $stats are read like any other stream"""
    async with connected(daemon) as client:
        [catalogue] = await client.subscribe("$streams", credit=1).events(1)
        names = {stream["name"] for stream in json.loads(catalogue.data)}
        expect({"count", "ticks", "page"} <= names, f"it lists {names}")
        [statistics] = await client.subscribe("$stats", credit=1).events(1)
        expect_equal(json.loads(statistics.data)["connections"], 1, "connections")


async def stop_cancels_every_request(daemon):
    """when the daemon stops every request is CANCELED, then the connection is closed with an error"""
    async with connected(daemon) as client:
        started = client.subscribe("ticks", credit=1)
        await started.events(1)
        waiting, value = client.subscribe("never"), client.get("never")
        await client.round_trip()
        daemon.ask_to_stop()
        wanted = (CANCELED, "streamd is stopping")
        expect_equal(await started.error(), wanted, "the end of one that has begun")
        expect_equal(await waiting.error(), wanted, "the end of one without events")
        expect_equal(await error_of(value), wanted, "the end of a request for a value")
        await client.handler.closed.wait()
        expect_equal(client.handler.errors, [(CONNECTION_CLOSE, "streamd is stopping")], "the errors of the connection")
        last = client.frames[-1]
        expect(isinstance(last, ErrorFrame) and last.stream_id == 0, f"the last frame is {last}")


CHECKS = [
    stream_is_replayed_and_completes,
    credit_is_kept_to,
    composite_metadata_may_hold_more,
    routing_metadata_names_the_stream,
    text_metadata_names_the_stream,
    other_metadata_types_are_refused,
    metadata_carries_id_and_time,
    ids_can_be_left_out,
    every_start_is_honoured,
    a_value_can_be_asked_for,
    cancel_ends_a_subscription,
    cancel_ends_a_request_for_a_value,
    unknown_names_are_rejected,
    private_streams_are_rejected,
    mistakes_are_invalid,
    lag_can_be_an_error,
    keepalives_are_echoed,
    silent_clients_are_closed,
    leases_are_honoured,
    large_events_are_reassembled,
    fragmented_requests_are_reassembled,
    pushes_are_ignored,
    channels_are_rejected,
    values_are_published_in_order,
    publishers_share_a_stream,
    a_lossless_stream_holds_its_publisher,
    values_of_many_fragments_are_published,
    a_publisher_may_give_up,
    strangers_may_not_publish,
    a_filter_counts_what_it_leaves_out,
    a_marker_follows_the_newest_event,
    requests_share_a_connection,
    catalogue_lists_the_streams,
    stop_cancels_every_request,
]
