"""Upstreams that say when they want to be asked again, and notice who does not listen.

/github/KEY?interval=1&limit=3&window=2: a feed with ETag, another page every second request, X-Poll-Interval, and X-RateLimit-Remaining
and -Reset for each credential. With list=1 a page is a list of events, the newest first. /listened/KEY tells the number of requests, of those before the interval was over (but for a
millisecond), and of those above the limit.
"""
import collections
import json
import threading
import time

lock = threading.Lock()


class State:
    def __init__(self):
        self.requests, self.early, self.over, self.due = 0, 0, 0, {}
        self.windows = collections.defaultdict(lambda: [0.0, 0])


states = collections.defaultdict(State)


def github(handler, key, number, query):
    account, now = handler.headers.get("Authorization", ""), time.time()
    interval, limit, window = float(query.get("interval", "0")), int(query.get("limit", "1000000")), float(query.get("window", "2"))
    with lock:
        state = states[key]
        state.requests += 1
        state.early += now < state.due.get(handler.path + account, 0) - 0.001
        state.due[handler.path + account] = now + interval
        used = state.windows[account]
        if now >= used[0]:
            # Whole seconds, as in the field.
            used[:] = [int(now + window) + 1, 0]
        used[1] += 1
        state.over += used[1] > limit
        left = max(0, limit - used[1])
    tag = '"%d"' % (number // 2)
    fields = {"ETag": tag, "X_RateLimit_Remaining": str(left), "X_RateLimit_Reset": str(int(used[0]))}
    if interval:
        fields["X_Poll_Interval"] = query["interval"]
    if handler.headers.get("If-None-Match") == tag:
        handler.answer(304, **fields)
    else:
        numbers = range(number // 2, max(-1, number // 2 - 30), -1)
        events = [{"id": str(n), "type": "PushEvent", "actor": {"login": "octocat"}} for n in numbers]
        handler.answer(200, json.dumps(events).encode() if "list" in query else b"%d\n" % (number // 2), **fields)


def tell(handler, key, number, query):
    with lock:
        state = states[key]
        handler.answer(200, json.dumps({"requests": state.requests, "early": state.early, "over": state.over}).encode())
