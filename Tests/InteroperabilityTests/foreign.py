"""A client of the package `rsocket`, used as documented, which also records the received frames."""

import asyncio
import contextlib
import copy
import itertools
import json
import logging
import struct
from datetime import timedelta

from daemon import Failure, expect
from reactivestreams.subscriber import DefaultSubscriber
from rsocket.error_codes import ErrorCode
from rsocket.exceptions import RSocketProtocolError
from rsocket.extensions.helpers import composite, route
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.frame import InvalidFrame
from rsocket.frame_builders import to_keepalive_frame
from rsocket.helpers import DefaultPublisherSubscription
from rsocket.payload import Payload
from rsocket.request_handler import BaseRequestHandler
from rsocket.rsocket_client import RSocketClient
from rsocket.streams.stream_from_generator import StreamFromGenerator
from rsocket.transports.tcp import TransportTCP

# The library warns about frames for cancelled requests, and about its own tasks when a server closes; both are valid.
logging.getLogger("pyrsocket").setLevel(logging.CRITICAL)


def application_code(cls, value):
    code = int.__new__(cls, value)
    code._name_, code._value_ = f"{value:#x}", value
    return code


# The library drops ERROR frames with a code above 0x300, which RSocket reserves for applications; so all codes are added.
ErrorCode._missing_ = classmethod(application_code)

COMPOSITE = WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA
ROUTING = WellKnownMimeTypes.MESSAGE_RSOCKET_ROUTING
TEXT = WellKnownMimeTypes.TEXT_PLAIN

NAMED_BY = {
    COMPOSITE: lambda name: composite(route(name)),
    ROUTING: lambda name: route(name).serialize(),
    TEXT: lambda name: name.encode(),
}

COMPLETE = "COMPLETE"


class Ear(TransportTCP):
    """Records every received frame before the library handles it."""

    def __init__(self, reader, writer):
        super().__init__(reader, writer)
        self.frames = []

    async def next_frame_generator(self):
        arriving = await super().next_frame_generator()
        return None if arriving is None else self._keep(arriving)

    async def _keep(self, arriving):
        async for frame in arriving:
            self.frames.append(copy.copy(frame))  # the library changes flags and data of its own
            yield frame


class Handler(BaseRequestHandler):
    """The errors and other frames of the connection itself."""

    def __init__(self):
        self.errors = []
        self.closed = asyncio.Event()

    async def on_error(self, error_code, payload):
        self.errors.append((int(error_code), payload.data.decode()))

    async def on_close(self, rsocket, exception=None):
        self.closed.set()


class Client(RSocketClient):
    """A client that reports the end of a round trip."""

    def __init__(self, transport, metadata_type, **settings):
        self.ear = transport
        self.handler = Handler()
        self._metadata_type = metadata_type
        self._numbers = itertools.count(1)
        self._echoes = {}
        # The client sends no keepalives of its own, except in checks that enable them.
        settings = {"keep_alive_period": timedelta(hours=1), "max_lifetime_period": timedelta(hours=1), **settings}
        super().__init__(
            only(transport), handler_factory=lambda: self.handler, metadata_encoding=metadata_type, **settings)

    @property
    def frames(self):
        return self.ear.frames

    async def handle_keep_alive(self, frame):
        await super().handle_keep_alive(frame)
        if echo := self._echoes.pop(bytes(frame.data), None):
            echo.set_result(None)

    async def round_trip(self, count=1):
        """Returns when the server has read all earlier frames, and its immediate replies have arrived."""
        for _ in range(count):
            data = f"round trip {next(self._numbers)}".encode()
            echo = self._echoes[data] = asyncio.get_running_loop().create_future()
            self.send_frame(to_keepalive_frame(data))
            await echo

    def payload(self, name, options) -> Payload:
        """The payload of a request; options that are bytes are sent unchanged."""
        data = options if isinstance(options, bytes) else json.dumps(options).encode() if options else None
        return Payload(data, NAMED_BY[self._metadata_type](name))

    def subscribe(self, name="", options=None, credit=None, metadata=None):
        """`credit`: unlimited by default; `metadata`: instead of the encoding of `name` in the connection's type."""
        payload = self.payload(name, options)
        names = options if isinstance(options, dict) else {}
        extra = (8 if "where" in names else 0) + (1 if names.get("marker") else 0)
        return Inbox.of(self.request_stream(Payload(payload.data, metadata or payload.metadata)), credit, extra)

    def publish(self, name, values, stays_open=False):
        """The first value is the request's own data; the others are sent on demand, and complete the request unless
        it `stays_open`."""
        first, rest = values[0], values[1:]
        last = len(rest) - 1

        def payloads():
            for index, value in enumerate(rest):
                yield Payload(value), index == last and not stays_open

        publisher = StreamFromGenerator(payloads) if rest else Silence() if stays_open else None
        return Inbox.of(self.request_channel(self.payload(name, first), publisher))

    def get(self, name, options=None):
        return self.request_response(self.payload(name, options))


async def only(transport):
    yield transport


@contextlib.asynccontextmanager
async def connected(daemon, metadata_type=COMPOSITE, **settings):
    """A client, which must have understood all received frames."""
    transport = Ear(*await asyncio.open_unix_connection(daemon.socket))
    async with Client(transport, metadata_type, **settings) as client:
        yield client
    expect(not any(isinstance(frame, InvalidFrame) for frame in transport.frames), "a frame could not be parsed")


class Silence(DefaultPublisherSubscription):
    """A publisher that sends nothing."""

    def request(self, n):
        pass

    def cancel(self):
        pass


class Inbox(DefaultSubscriber):
    """A subscriber that requests nothing by itself."""

    def __init__(self, extra=0):
        super().__init__()
        self._extra = extra
        self._signals = asyncio.Queue()

    @classmethod
    def of(cls, publisher, credit=None, extra=0):
        inbox = cls(extra)
        if credit is not None:
            publisher.initial_request_n(credit)
        publisher.subscribe(inbox)
        return inbox

    @property
    def id(self):
        return self.subscription.stream_id

    @property
    def is_empty(self):
        return self._signals.empty()

    def on_next(self, value, is_complete=False):
        self._signals.put_nowait(Event(value, self._extra))
        if is_complete:
            self.on_complete()

    def on_complete(self):
        self._signals.put_nowait(COMPLETE)

    def on_error(self, exception):
        self._signals.put_nowait(exception)

    async def events(self, count):
        """The next events; an earlier end is a failure."""
        events = []
        while len(events) < count:
            signal = await self._signals.get()
            expect(isinstance(signal, Event), f"event {len(events) + 1} of {count} is {signal!r}")
            events.append(signal)
        return events

    async def end(self):
        """COMPLETE or an exception; an event instead is a failure."""
        signal = await self._signals.get()
        expect(not isinstance(signal, Event), "an event came in place of the end")
        return signal

    async def error(self):
        """Code and message of the next error."""
        return code_and_sentence(await self.end())


class Event:
    """The content of a payload: bytes, and from its metadata an id, microseconds since the Unix epoch, and the rest, of a
    size that follows from the options."""

    def __init__(self, payload, extra=0):
        self.data = bytes(payload.data or b"")
        self.metadata = bytes(payload.metadata or b"")
        expect(len(self.metadata) in (0, 16 + extra), f"an event has {len(self.metadata)} bytes of metadata")
        self.id, self.time = struct.unpack(">QQ", self.metadata[:16]) if self.metadata else (None, None)
        self.rest = self.metadata[16:]


async def error_of(request):
    """Code and message of the error of a request for one value."""
    try:
        await request
    except Exception as exception:
        return code_and_sentence(exception)
    raise Failure("it got a value in place of an error")


def code_and_sentence(signal):
    expect(isinstance(signal, RSocketProtocolError), f"the end is {signal!r}")
    return int(signal.error_code), signal.data
