"""The blocking side: each call waits for what it returns."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from . import _streamd
from ._errors import Error, is_loss
from ._options import Data, OnLag, Since, Start, Where, body_bytes, invalid, name_bytes, open_newest, open_subscription, place_of
from ._streamd import Event

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Subscription(_streamd.Subscription):
    """The events of a stream, as an iterator. It ends when the stream has completed, and raises an Error when it ended otherwise."""

    __slots__ = ()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()


class Mapped(_streamd.Mapped):
    """The events of a mapped stream, in memory that the daemon shares, as an iterator. It ends as a Subscription does."""

    __slots__ = ()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()


class Publisher(_streamd.Publisher):
    """Values for a stream. Leaving `with` without an exception flushes; with one, it only closes."""

    __slots__ = ()

    def send(self, data: Data) -> None:
        """Queues a value; waits while the queue is full."""
        while not self._put(data):
            self.flush()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()


class Connection(_streamd.Connection):
    """A connection to a daemon. It and what is made from it are for one thread at a time."""

    __slots__ = ()

    def subscribe(
        self, stream: str, *, start: Start = "replay", since: Since | None = None, last: int | None = None,
        on_lag: OnLag | None = None, where: Where | None = None, marker: bool = False, reconnect: bool = True, credit: int = 1024,
    ) -> Subscription:
        """The events of a stream from a start, since an id or a time, or from the last so many on. A refusal is an error of the first
        wait for an event.

        on_lag: if events are lost, continue with the oldest stored one ("skip") or the newest ("latest"), or "fail"; None: as the
        stream is configured. where: a filter, such as {"/symbol": "AAPL"}. marker: deliver markers, too. reconnect: restore a lost
        connection and continue after the last event; what was lost is its `gap`. credit: events in flight, renewed while reading."""
        return open_subscription(Subscription, self, stream, start, since, last, on_lag, where, marker, reconnect, credit)

    def map(
        self, stream: str, *, start: Literal["replay", "latest", "new"] = "replay", since: Since | None = None, last: int | None = None,
        on_lag: OnLag | None = None, reconnect: bool = True, timeout: float | None = None,
    ) -> Mapped:
        """The events of a stream with `map = true`, on a Unix socket, as subscribe() gives them, but without a system call for each.

        Returns once the daemon has passed the memory; a refusal is an error of this call. A reader that is too slow is overtaken,
        with an exact `gap`; on_lag=None is "skip". At least once a second, read or wait, or do something else with the connection."""
        return Mapped(self, stream, *place_of(start, since, last, on_lag), reconnect, timeout)

    def get(self, stream: str, *, timeout: float | None = None) -> Event:
        """The newest event, or the first one if there is none yet. EOFError: the stream has ended without an event."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            newest = open_newest(self, stream)
            try:
                return newest.next(None if until is None else until - monotonic())
            except Error as error:
                if not is_loss(error) or not self._lasts():  # else other objects restore it
                    raise
            finally:
                newest.close()

    def publish(self, stream: str, data: Data, *, timeout: float | None = None) -> None:
        """Returns when the value is in the stream."""
        publisher = Publisher(self, stream, None)
        try:
            publisher.send(data)
            publisher.flush(timeout)
        finally:
            publisher.close()

    def publisher(self, stream: str, *, name: str | bytes | None = None) -> Publisher:
        """With a name of 1 to 48 bytes, values are numbered, and sent again after a loss of the connection: none is lost or repeated."""
        return Publisher(self, stream, name_bytes(name))

    def make(self, stream: str, *, timeout: float | None = None) -> None:
        """Makes a stream of a template, whose name has parameters; one that is there stays. Subscribing and publishing make it, too.

        NotFound: no template has the name. LimitExceeded: all streams that this user may have are in use."""
        self._command(stream, False, timeout)

    def forget(self, stream: str, *, timeout: float | None = None) -> None:
        """Ends a stream of a template with its events; the next request for the name makes another one.

        For who made it, who may publish to it, and root. NotFound: there is no such stream."""
        self._command(stream, True, timeout)

    def request(self, stream: str, data: Data, *, timeout: float | None = None) -> str:
        """Asks the upstream of a template that takes requests, once; returns the name of the stream of the answer.

        `stream` is that name, or the name without the last parameter, which the daemon then makes. The same request for the same
        name has the same answer. NotSupported: the stream is the answer to another request. ConnectionLost: the upstream may have
        been asked."""
        command = _streamd.Command(self, stream, False, body_bytes(data))
        try:
            command.wait(timeout)
            return command._stream()
        finally:
            command.close()

    def _command(self, stream: str, forget: bool, timeout: float | None) -> None:
        command = _streamd.Command(self, stream, forget)
        try:
            command.wait(timeout)
        finally:
            command.close()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()


def connect(address: str | None = None, *, token: str | None = None) -> Connection:
    """Connects to "/path", "unix:/path", "tcp:host:port" or "host:port"; None: $STREAMD_SOCKET, then /run/streamd/streamd.sock.

    token: for a daemon over TCP. One that is not valid is AccessDenied of later calls."""
    return Connection(address, token)


def read(
    stream: str, *, last: int | None = None, since: Since | None = None, where: Where | None = None, address: str | None = None,
    token: str | None = None,
) -> list[Event]:
    """The stored events, oldest first, without waiting for others: the last so many, those since, or all.

    With a filter these are the last so many that fit: all stored events that fit are then read to find them."""
    if last is not None and last < 0:
        raise invalid(f"last: {last} is negative")
    events: deque[Event] = deque(maxlen=last)
    is_last = last and since is None and where is None  # else the daemon does not know which are the last
    position: dict[str, Any] = {"last": last} if is_last else {"since": 0 if since is None else since}
    with connect(address, token=token) as c, c.subscribe(stream, **position, where=where, marker=True, reconnect=False) as stored:
        for event in stored:
            if event.is_marker:
                break
            events.append(event)
    return list(events)
