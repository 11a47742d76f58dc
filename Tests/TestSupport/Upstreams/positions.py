"""Upstreams whose answers have a position, and what their clients have done with it.

/telegram/KEY/getUpdates?offset=&timeout=&total=: the Bot API. Updates have ids from FIRST on, above 2^53, and numbers from 1 on.
An offset confirms all updates before it, which are never sent again, and a second reader at a time is answered with 409.
/pages/KEY?total=&size=: a page of numbers; /linked is followed by Link, /headed by X-Next and after=, and /graphql is a POST with
the position in the variables of its body. /told/KEY tells what the clients of a key have done: the offsets or positions in order,
how many updates were sent twice, and how many requests were refused.
"""
import collections
import json
import select
import threading
import time

FIRST = 9007199254740993
lock = threading.Lock()


class Told:
    def __init__(self):
        self.positions, self.confirmed, self.sent, self.twice, self.refused, self.reader = [], 0, 0, 0, 0, None


told = collections.defaultdict(Told)


def tell(handler, key, number, query):
    with lock:
        state = {name: value for name, value in vars(told[key]).items() if name != "reader"}
    handler.answer(200, json.dumps(state).encode())


def is_gone(handler):
    """Whether the client has closed the connection."""
    readable, _, _ = select.select([handler.connection], [], [], 0)
    return bool(readable)


def telegram(handler, key, number, query):
    state, total = told[key], int(query["total"])
    with lock:
        if state.reader is not None and not is_gone(state.reader):
            state.refused += 1
            return handler.answer(409, b'{"ok":false,"error_code":409}', Content_Type="application/json")
        state.reader = handler
        state.positions.append(query.get("offset", ""))
        state.confirmed = max(state.confirmed, int(query.get("offset", FIRST)) - FIRST)
        first = state.confirmed + 1
        numbers = list(range(first, min(first + 3, total + 1)))
        state.twice += sum(n <= state.sent for n in numbers)
        state.sent = max([state.sent, *numbers])
    until = time.monotonic() + (0 if numbers else int(query.get("timeout", "0")))
    while time.monotonic() < until and not is_gone(handler):
        time.sleep(0.01)
    updates = [{"update_id": FIRST - 1 + n, "message": {"number": n}} for n in numbers]
    try:
        handler.answer(200, json.dumps({"ok": True, "result": updates}).encode(), Content_Type="application/json")
    finally:
        with lock:
            if state.reader is handler:
                state.reader = None


def page(key, after, query):
    """The numbers behind `after`, and the position of the last one."""
    size, total = int(query.get("size", "3")), int(query["total"])
    with lock:
        told[key].positions.append(after)
    first = int(after.lstrip("c") or "0") + 1
    numbers = list(range(first, min(first + size, total + 1)))
    return numbers, "c%d" % numbers[-1] if numbers else ""


def linked(handler, key, number, query):
    numbers, position = page(key, query.get("after", ""), query)
    target = query.get("link", "/linked/%s?total=%s&after=%s&token=%s" % (
        key, query["total"], position, query.get("token", "")))
    links = {"Link": '<%s>; rel="prev last", </x>;title="a, b>\\"";rel=next2, <%s>; rel="next"' % (handler.path, target)}
    handler.answer(200, json.dumps(numbers).encode(), **(links if position else {}))


def headed(handler, key, number, query):
    after = handler.headers.get("X-After", query.get("after", ""))
    numbers, position = page(key, after, query)
    handler.answer(200, json.dumps(numbers).encode(), **({"X_Next": position} if position else {}))


def graphql(handler, key, number, query):
    numbers, position = page(key, json.loads(handler.body)["variables"]["after"] or "", query)
    data = {"orders": {"nodes": numbers, "pageInfo": {"endCursor": position or None}}}
    handler.answer(200, json.dumps({"data": data}).encode(), Content_Type="application/json")
