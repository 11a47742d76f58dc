"""The exceptions, by kind."""

from __future__ import annotations

import errno
import os


class Error(Exception):
    """The base of all errors; str() is the daemon's sentence, if it gave one."""

    code: int  # an errno, positive, as streamd.h has them

    def __init__(self, sentence: str = "", code: int = 0) -> None:
        super().__init__(sentence)
        self.code = code


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


def error_of(code: int, sentence: str) -> Error:
    return _KINDS.get(code, Error)(sentence, code)


def connect_error(code: int, address: str | None, token: str | None) -> Error:
    """The error of sdm_connect(), which has no sentence."""
    if address is None:
        address = os.environ.get("STREAMD_SOCKET", "/run/streamd/streamd.sock")
    if token is not None and not 1 <= len(token.encode()) <= 1024:
        return Invalid("a token has 1 to 1,024 bytes", code)
    if code == errno.EINVAL:
        return Invalid(f'"{address}" is no address: expected an absolute path, unix:/path, tcp:host:port or host:port', code)
    return ConnectionLost(f"cannot connect to {address}: {os.strerror(code)}", code)
