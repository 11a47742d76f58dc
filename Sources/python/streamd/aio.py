"""asyncio's side: the same objects, with waits as coroutines, on the loop's add_reader().

    async with streamd.aio.connect() as c:
        async for event in c.subscribe("quotes"):
            ...

A cancelled wait loses no event. Bound waits with asyncio.timeout(). One loop's tasks may use one connection at the same time.

A map waits for memory to change, by a futex, which no loop can poll. So each map has a thread that waits, and a connection that this
thread alone uses while it does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from weakref import WeakSet

from . import _streamd
from ._errors import Error, Timeout, is_loss
from ._options import Data, OnLag, Since, Start, Where, body_bytes, name_bytes, open_newest, open_subscription, place_of
from ._streamd import Event

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from concurrent.futures import ThreadPoolExecutor
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["AsyncConnection", "AsyncMapped", "AsyncPublisher", "AsyncSubscription", "connect"]

Result = TypeVar("Result")

# The longest wait of a map's thread, and so the longest time that closing a map takes.
_SLICE_SECONDS = 0.1

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


class AsyncMapped:
    """The events of a mapped stream, as an asynchronous iterator. For one task at a time. It waits in a thread of its own."""

    __slots__ = ("__weakref__", "_connection", "_core", "_loop", "_thread", "_waiting")

    _core: _streamd.Mapped

    def __init__(self, loop: AbstractEventLoop, thread: ThreadPoolExecutor) -> None:
        self._loop, self._thread = loop, thread
        self._connection: _streamd.Connection | None = None
        self._waiting: Future[bool] | None = None  # what the thread does now; nothing else may use the map meanwhile

    def _run(self, function: Callable[..., Result], *arguments: object) -> Future[Result]:
        return self._loop.run_in_executor(self._thread, function, *arguments)

    async def _open(self, address: tuple[str | None, str | None], *words: Any) -> None:
        try:
            self._connection = await self._run(_streamd.Connection, *address)
            while True:
                try:
                    self._core = await self._run(_streamd.Mapped, self._connection, *words, _SLICE_SECONDS)
                    return
                except Timeout:  # the request is made again: a cancelled task leaves nothing behind
                    continue
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def _ready(self) -> None:
        from asyncio import wait

        while self._waiting or not self._core._is_ready():
            waiting = self._waiting = self._waiting or self._run(self._core._wait, _SLICE_SECONDS)
            await wait([waiting])  # which a cancelled task leaves to the next one
            if self._waiting is waiting:
                self._waiting = None
            waiting.result()

    @property
    def generation(self) -> int:
        """It rises with each reload and restart that replaces the memory. RuntimeError while another task waits."""
        return self._core.generation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._waiting or not self._core._is_ready():
            await self._ready()
        try:
            return self._core.next(0)
        except EOFError:
            raise StopAsyncIteration from None

    async def batch(self, limit: int = 1000) -> list[Event]:
        """Waits for one event, then takes what is there. Empty at the end of the stream."""
        if self._waiting or not self._core._is_ready():
            await self._ready()
        return self._core.batch(limit, 0)

    async def close(self) -> None:
        from asyncio import wait

        if self._waiting:
            await wait([self._waiting])
            self._waiting = None
        if self._connection:
            self._connection.close()
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        if not self._waiting:
            self._core._check()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        await self.close()


class AsyncPublisher(_Made[_streamd.Publisher]):
    """Values for a stream. Leaving `async with` without an exception flushes; with one, it only closes."""

    __slots__ = ()

    async def send(self, data: Data) -> None:
        """Queues a value; waits while the queue is full."""
        while not self._core._put(data):
            await self.flush()

    async def flush(self) -> None:
        """Waits until every value so far is in the stream."""
        await self._connection._finish(self._core._is_flushed)

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

    __slots__ = ("_address", "_core", "_descriptor", "_flushing", "_loop", "_maps", "_reading")

    def __init__(self, core: _streamd.Connection, loop: AbstractEventLoop, address: tuple[str | None, str | None]) -> None:
        self._core, self._loop, self._descriptor, self._address = core, loop, core.fileno(), address  # and a token
        self._maps: WeakSet[AsyncMapped] = WeakSet()
        # Waiting tasks, with what each waits for. Those that also process the connection come first: they flush, or await a command.
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

    async def map(
        self, stream: str, *, start: Literal["replay", "latest", "new"] = "replay", since: Since | None = None, last: int | None = None,
        on_lag: OnLag | None = None, reconnect: bool = True,
    ) -> AsyncMapped:
        """See Connection.map(). It has a connection of its own."""
        from concurrent.futures import ThreadPoolExecutor

        self._core._check()
        place = place_of(start, since, last, on_lag)
        mapped = AsyncMapped(self._loop, ThreadPoolExecutor(1, "streamd-map"))
        await mapped._open(self._address, stream, *place, reconnect)
        self._maps.add(mapped)
        return mapped

    async def get(self, stream: str) -> Event:
        """The newest event, or the first one if there is none yet. EOFError: the stream has ended without an event."""
        while True:
            newest = open_newest(self._core, stream)
            try:
                if not newest._is_ready():
                    await self._wait_for(newest._is_ready)
                return newest.next(0)
            except Error as error:
                if not is_loss(error) or not self._core._lasts():  # else other objects restore it
                    raise
            finally:
                newest.close()

    async def publish(self, stream: str, data: Data) -> None:
        """Returns when the value is in the stream."""
        core = _streamd.Publisher(self._core, stream, None)
        try:
            core._put(data)
            await self._finish(core._is_flushed)
        finally:
            core.close()

    def publisher(self, stream: str, *, name: str | bytes | None = None) -> AsyncPublisher:
        """See Connection.publisher()."""
        return AsyncPublisher(self, _streamd.Publisher(self._core, stream, name_bytes(name)))

    async def make(self, stream: str) -> None:
        """See Connection.make()."""
        await self._command(stream, False)

    async def forget(self, stream: str) -> None:
        """See Connection.forget()."""
        await self._command(stream, True)

    async def request(self, stream: str, data: Data) -> str:
        """See Connection.request()."""
        core = _streamd.Command(self._core, stream, False, body_bytes(data))
        try:
            await self._finish(core._is_done)
            return core._stream()
        finally:
            core.close()

    async def _command(self, stream: str, forget: bool) -> None:
        core = _streamd.Command(self._core, stream, forget)
        try:
            await self._finish(core._is_done)
        finally:
            core.close()

    async def close(self) -> None:
        """Ends the connection, and closes what was made from it."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1
            self._core.close()
            self._wake()
            for mapped in list(self._maps):
                await mapped.close()

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

    async def _finish(self, is_finished: Callable[[], bool]) -> None:
        """Waits for what is_finished() begins; it processes the connection."""
        while True:
            is_over = is_finished()
            self._wake()  # it may have received what others wait for
            if is_over:
                return
            await self._wait(self._flushing, is_finished)


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
        return AsyncConnection(core, loop, (self._address, self._token))

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
