"""asyncio's side: the same objects, with waits as coroutines, on the loop's add_reader().

    async with streamd.aio.connect() as c:
        async for event in c.subscribe("quotes"):
            ...

A cancelled wait loses no event. Bound waits with asyncio.timeout(). One loop's tasks may use one connection at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _streamd
from ._errors import ConnectionLost
from ._options import Data, OnLag, Since, Start, Where, name_bytes, open_newest, open_subscription
from ._streamd import Event

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["AsyncConnection", "AsyncPublisher", "AsyncSubscription", "connect"]

Core = TypeVar("Core", bound="_streamd.Subscription | _streamd.Publisher")


class _Made(Generic[Core]):
    """What is made from a connection."""

    __slots__ = ("_connection", "_core")

    def __init__(self, connection: AsyncConnection, core: Core) -> None:
        self._connection, self._core = connection, core

    async def close(self) -> None:
        self._core.close()
        self._connection._wake()

    async def __aenter__(self) -> Self:
        self._core._check()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        await self.close()


class AsyncSubscription(_Made[_streamd.Subscription]):
    """The events of a stream, as an asynchronous iterator. For one task at a time."""

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._core._is_ready():
            await self._connection._wait_for(self._core._is_ready)
        try:
            return self._core.next(0)
        except EOFError:
            raise StopAsyncIteration from None

    async def batch(self, limit: int = 1000) -> list[Event]:
        """Waits for one event, then takes what is there. Empty at the end of the stream."""
        if not self._core._is_ready():
            await self._connection._wait_for(self._core._is_ready)
        return self._core.batch(limit, 0)


class AsyncPublisher(_Made[_streamd.Publisher]):
    """Values for a stream. Leaving `async with` without an exception flushes; with one, it only closes."""

    __slots__ = ()

    async def send(self, data: Data) -> None:
        """Queues a value; waits while the queue is full."""
        while not self._core._put(data):
            await self.flush()

    async def flush(self) -> None:
        """Waits until every value so far is in the stream."""
        await self._connection._flush(self._core)

    @property
    def confirmed(self) -> int:
        """The number of the last value that is known to be in the stream; of a name, after flush()."""
        return self._core.confirmed

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()


class AsyncConnection:
    """A connection to a daemon, for the tasks of the loop in which it was made."""

    __slots__ = ("_core", "_descriptor", "_flushing", "_loop", "_reading")

    def __init__(self, core: _streamd.Connection, loop: AbstractEventLoop) -> None:
        self._core, self._loop, self._descriptor = core, loop, core.fileno()
        # Waiting tasks, with what each waits for. Those that flush also process the connection: they come first.
        self._flushing: dict[Future[None], Callable[[], bool]] = {}
        self._reading: dict[Future[None], Callable[[], bool]] = {}
        loop.add_reader(self._descriptor, self._receive)

    def subscribe(
        self, stream: str, *, start: Start = "replay", since: Since | None = None, last: int | None = None,
        on_lag: OnLag | None = None, where: Where | None = None, marker: bool = False, reconnect: bool = True, credit: int = 1024,
    ) -> AsyncSubscription:
        """See Connection.subscribe()."""
        core = open_subscription(_streamd.Subscription, self._core, stream, start, since, last, on_lag, where, marker, reconnect, credit)
        return AsyncSubscription(self, core)

    async def get(self, stream: str) -> Event:
        """The newest event, or the first one if there is none yet. EOFError: the stream has ended without an event."""
        while True:
            newest = open_newest(self._core, stream)
            try:
                if not newest._is_ready():
                    await self._wait_for(newest._is_ready)
                return newest.next(0)
            except ConnectionLost:
                if not self._core._lasts():  # else other objects restore it
                    raise
            finally:
                newest.close()

    async def publish(self, stream: str, data: Data) -> None:
        """Returns when the value is in the stream."""
        core = _streamd.Publisher(self._core, stream, None)
        try:
            core._put(data)
            await self._flush(core)
        finally:
            core.close()

    def publisher(self, stream: str, *, name: str | bytes | None = None) -> AsyncPublisher:
        """See Connection.publisher()."""
        return AsyncPublisher(self, _streamd.Publisher(self._core, stream, name_bytes(name)))

    async def close(self) -> None:
        """Ends the connection, and closes what was made from it."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1
            self._core.close()
            self._wake()

    async def __aenter__(self) -> Self:
        self._core._check()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        await self.close()

    def _receive(self) -> None:
        self._core._process()  # its end is the result of each object
        self._wake()

    def _wake(self) -> None:
        """Wakes the tasks whose wait is over, or fails, which they find out again themselves."""
        for waiting in (self._flushing, self._reading):
            for future, is_over in list(waiting.items()):
                if not future.done() and _is_over(is_over):
                    future.set_result(None)

    async def _wait(self, waiting: dict[Future[None], Callable[[], bool]], is_over: Callable[[], bool]) -> None:
        future: Future[None] = self._loop.create_future()
        waiting[future] = is_over
        try:
            await future
        finally:
            del waiting[future]

    async def _wait_for(self, is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            await self._wait(self._reading, is_ready)

    async def _flush(self, core: _streamd.Publisher) -> None:
        while True:
            is_flushed = core._is_flushed()
            self._wake()  # it may have received what others wait for
            if is_flushed:
                return
            await self._wait(self._flushing, core._is_flushed)


def _is_over(is_over: Callable[[], bool]) -> bool:
    try:
        return is_over()
    except Exception:
        return True


class _Connecting:
    """For `async with` and for `await`."""

    __slots__ = ("_address", "_connection", "_token")

    def __init__(self, address: str | None, token: str | None) -> None:
        self._address, self._token = address, token
        self._connection: AsyncConnection | None = None

    async def _connect(self) -> AsyncConnection:
        from asyncio import get_running_loop  # its import takes longer than that of the whole package

        loop = get_running_loop()
        core = await loop.run_in_executor(None, _streamd.Connection, self._address, self._token)
        return AsyncConnection(core, loop)

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self._connect()
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        if self._connection:
            await self._connection.close()


def connect(address: str | None = None, *, token: str | None = None) -> _Connecting:
    """As streamd.connect(), for `async with` and for `await`."""
    return _Connecting(address, token)
