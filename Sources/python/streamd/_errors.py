"""The exceptions, by kind."""

from __future__ import annotations

import errno
import os
from enum import IntEnum


class Reason(IntEnum):
    """Why the daemon has refused or ended something: see WIRE.md, "Reasons"."""

    NO_STREAM = 1
    MAY_NOT_READ = 2
    MAY_NOT_WRITE = 3
    MAY_NOT_COMMAND = 4
    TAKES_NO_VALUES = 5
    NO_SPACE = 6
    NO_KEY = 7
    NO_EFFECT = 8
    TOO_MANY_REQUESTS = 9
    TOO_MANY_VIEWS = 10
    TOO_MANY_PUBLISHERS = 11
    TOO_MANY_MAPS = 12
    NO_DESCRIPTORS = 13
    NO_MEMORY = 14
    TOO_MANY_FILTERS = 15
    FILTERS_TOO_LARGE = 16
    INVALID_REQUEST = 17
    UNKNOWN_POSITION = 18
    NO_STATE = 19
    TOO_LARGE = 20
    NOT_JSON = 21
    NOT_MAPPED = 22
    NOT_MAPPABLE = 23
    FAILED = 24
    LAGGED = 25
    EVENT_LOST = 26
    STALLED = 27
    STOPPING = 28
    RESTARTING = 29
    KICKED = 30
    TOKEN_REMOVED = 31
    NO_CAPACITY = 32
    REMOVED = 33
    ENDED = 34
    TAKES_NO_MORE_VALUES = 35
    VALUES_LOST = 36
    NAME_IN_USE = 37
    MAP_REMOVED = 38
    STATE_LOST = 39
    TYPE_CHANGED = 40
    INVALID_TOKEN = 41
    INVALID_AUTHENTICATION = 42
    TOO_MANY_CONNECTIONS = 43
    NOT_CONFIGURED = 44
    TOO_MUCH_INPUT = 45
    REQUEST_TOO_LARGE = 46
    TOO_MANY_STREAMS = 47
    OTHER_REQUEST = 48
    NOT_KEPT = 49


class Error(Exception):
    """The base of all errors; str() is the daemon's sentence, if it gave one. It is for people: it may change."""

    code: int  # an errno, positive, as streamd.h has them
    reason: Reason | int | None  # the daemon's; an int of a later daemon; None: unknown, or not the daemon's

    def __init__(self, sentence: str = "", code: int = 0, reason: int = 0) -> None:
        super().__init__(sentence)
        self.code = code
        self.reason = _reason_of(reason)


def _reason_of(number: int) -> Reason | int | None:
    try:
        return Reason(number) if number else None
    except ValueError:
        return number


class NotFound(Error):
    """No stream has this name."""


class AccessDenied(Error):
    """The access rules do not admit this user, or its token is not valid."""


class Lagged(Error):
    """Events were lost with on_lag="fail", or this reader stalled a lossless stream."""


class Invalid(Error, ValueError):
    """Options, a filter, an id that no event has yet, or a value that is too large."""


class NotSupported(Error):
    """The stream accepts no values, or is not mapped; or a map over TCP."""


class LimitExceeded(Error):
    """A limit of the daemon, for this user or connection."""


class Canceled(Error):
    """The daemon stopped, the stream was removed, or another publisher has the name."""


class SourceFailed(Error):
    """The source of the stream has failed permanently."""


class ConnectionLost(Error, ConnectionError):
    """Could not connect, or the connection was lost and nothing restores it."""


class ProtocolError(Error):
    """The peer is not streamd, or the memory of a map is not as the daemon has told."""


class Timeout(Error, TimeoutError):
    """The time is over."""


_KINDS: dict[int, type[Error]] = {
    errno.ENOENT: NotFound,
    errno.EACCES: AccessDenied,
    errno.ENOBUFS: Lagged,
    errno.EINVAL: Invalid,
    errno.EMSGSIZE: Invalid,
    errno.EOPNOTSUPP: NotSupported,
    errno.EDQUOT: LimitExceeded,
    errno.ECANCELED: Canceled,
    errno.EIO: SourceFailed,
    errno.ECONNRESET: ConnectionLost,
    errno.ECONNREFUSED: ConnectionLost,
    errno.EPROTO: ProtocolError,
    errno.ETIMEDOUT: Timeout,
}


# The connection ends as well, and another one may be made.
_LOSSES = {Reason.STOPPING, Reason.RESTARTING, Reason.KICKED, Reason.TOKEN_REMOVED, Reason.NO_CAPACITY}


def is_loss(error: Error) -> bool:
    return isinstance(error, ConnectionLost) or error.reason in _LOSSES


def error_of(code: int, sentence: str, reason: int) -> Error:
    return _KINDS.get(code, Error)(sentence, code, reason)


def connect_error(code: int, address: str | None, token: str | None) -> Error:
    """The error of sdm_connect(), which has no sentence."""
    if address is None:
        address = os.environ.get("STREAMD_SOCKET", "/run/streamd/streamd.sock")
    if token is not None and not 1 <= len(token.encode()) <= 1024:
        return Invalid("a token has 1 to 1,024 bytes", code)
    if code == errno.EINVAL:
        return Invalid(f'"{address}" is no address: expected an absolute path, unix:/path, tcp:host:port or host:port', code)
    return ConnectionLost(f"cannot connect to {address}: {os.strerror(code)}", code)
