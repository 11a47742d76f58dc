"""Arguments, and what they are in streamd.h."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union

from . import _streamd
from ._errors import Invalid

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Data: TypeAlias = str | Buffer
else:
    Data = Union[str, bytes, bytearray, memoryview]

Since: TypeAlias = Union[int, datetime, timedelta]
Start: TypeAlias = Literal["replay", "latest", "new", "state"]
OnLag: TypeAlias = Literal["skip", "latest", "fail"]
Where: TypeAlias = Union[Mapping[str, Any], str]  # a filter: JSON pointers and conditions, or its JSON text

Opened = TypeVar("Opened", bound=_streamd.Subscription)
Place = tuple[int, int, int]  # sdm_options.from, .since and .on_lag

# sdm_from and sdm_on_lag.
_STARTS = {"replay": 0, "latest": 1, "new": 2, "state": 3}
_FROM_ID, _FROM_TIME, _FROM_AGO, _FROM_LAST = 4, 5, 6, 7
_ON_LAG = {None: 0, "skip": 1, "latest": 2, "fail": 3}

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_LARGEST_CREDIT = 2**31 - 2  # what is more is credit without limit


def invalid(sentence: str) -> Invalid:
    return Invalid(sentence, errno.EINVAL)


def _since_of(since: Since) -> tuple[int, int]:
    """sdm_options.from and .since."""
    if isinstance(since, datetime):
        if since.utcoffset() is None:
            raise invalid("since: a datetime without a time zone")
        return _FROM_TIME, max(0, (since - _EPOCH) // _MICROSECOND)
    if isinstance(since, timedelta):
        kind, number = _FROM_AGO, since // _MICROSECOND
    else:
        kind, number = _FROM_ID, index(since)  # also an integer of numpy
    if not 0 <= number < 2**64:
        raise invalid(f"since: {since} is out of range")
    return kind, number


def place_of(start: Start, since: Since | None, last: int | None, on_lag: OnLag | None) -> Place:
    if (start != "replay") + (since is not None) + (last is not None) > 1:
        raise TypeError("start, since and last exclude each other")
    if start not in _STARTS:
        raise invalid(f"start: {start!r} is none of {', '.join(_STARTS)}")
    if on_lag not in _ON_LAG:
        raise invalid(f"on_lag: {on_lag!r} is none of skip, latest, fail")
    if last is not None:
        begin, number = _FROM_LAST, index(last)
        if not 1 <= number < 2**64:
            raise invalid(f"last: {last} is out of range")
    else:
        begin, number = (_STARTS[start], 0) if since is None else _since_of(since)
    return begin, number, _ON_LAG[on_lag]


def open_subscription(
    kind: type[Opened], connection: _streamd.Connection, stream: str, start: Start, since: Since | None, last: int | None,
    on_lag: OnLag | None, where: Where | None, marker: bool, reconnect: bool, credit: int,
) -> Opened:
    place = place_of(start, since, last, on_lag)
    if not 1 <= credit <= _LARGEST_CREDIT:
        raise invalid(f"credit: {credit} is not between 1 and {_LARGEST_CREDIT:,}")
    text = where if where is None or isinstance(where, str) else json.dumps(where)
    return kind(connection, stream, *place, text, marker, reconnect, credit)


def open_newest(connection: _streamd.Connection, stream: str) -> _streamd.Subscription:
    """A subscription whose first event is the newest one: what the daemon makes of a request for one value."""
    return _streamd.Subscription(connection, stream, _STARTS["latest"], 0, _ON_LAG["latest"], None, False, False, 1, urgent=True)


def body_bytes(data: Data) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


def name_bytes(name: str | bytes | None) -> bytes | None:
    return name.encode() if isinstance(name, str) else name
