"""Subscribe to, read, map, publish and make the streams of streamd; built on libstreamd, with the GIL released in every wait.

    with streamd.connect() as c:
        for event in c.subscribe("quotes", where={"/symbol": "AAPL"}):
            print(event.id, event.time, event.json())

Rules. Waits end with KeyboardInterrupt (and any exception of a signal handler) at once, and the object stays usable. `timeout`
is in seconds, None: without limit; its end raises Timeout. Iterators end (StopIteration) when the stream has completed, and
raise an Error when it ended otherwise. A closed object raises ValueError, as a closed file does; closing a connection closes
what was made from it. Connections and what is made from them: one thread at a time (else RuntimeError), other connections at
the same time. After a fork the child may only drop them. `str` is sent as UTF-8; nothing else is converted: pass json.dumps(x).
Data of events are bytes of their own, without a lifetime rule. `start` is where to begin without `since` and `last`. `since`: an event id;
an aware datetime (naive: ValueError); a timedelta: so long ago. `last`: the last so many stored events, then new ones; a filter
leaves out those of them that do not fit. Two of the three: TypeError.

streamd.aio is the side of asyncio.
"""

from typing import Final

from . import aio
from ._blocking import Connection, Mapped, Publisher, Subscription, connect, read
from ._errors import (
    AccessDenied,
    Canceled,
    ConnectionLost,
    Error,
    Invalid,
    Lagged,
    LimitExceeded,
    NotFound,
    NotSupported,
    ProtocolError,
    Reason,
    SourceFailed,
    Timeout,
)
from ._options import Data, OnLag, Since, Start, Where
from ._streamd import Event
from .aio import AsyncConnection, AsyncMapped, AsyncPublisher, AsyncSubscription

__version__: Final[str] = "0.3.0"

__all__ = [
    "AccessDenied", "AsyncConnection", "AsyncMapped", "AsyncPublisher", "AsyncSubscription", "Canceled", "Connection", "ConnectionLost",
    "Data", "Error", "Event", "Invalid", "Lagged", "LimitExceeded", "Mapped", "NotFound", "NotSupported", "OnLag", "ProtocolError", "Publisher", "Reason", "Since",
    "SourceFailed", "Start", "Subscription", "Timeout", "Where", "__version__", "aio", "connect", "read",
]

# What a traceback and pickle call them.
for _type in (Connection, Mapped, Publisher, Subscription, AccessDenied, Canceled, ConnectionLost, Error, Invalid, Lagged, LimitExceeded, NotFound,
              NotSupported, ProtocolError, Reason, SourceFailed, Timeout):
    _type.__module__ = __name__
