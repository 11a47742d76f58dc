"""An OAuth2 server and what it guards.

/token/KEY?lifetime=3600&rotate=1&do=500,grant: the token endpoint for the client `me` with the secret `s3cret/+&` or none, and for the
refresh token `first`. With rotate each refresh token is valid once: its second use ends all access (RFC 9700, 4.14.2). `do` says what
happens with each request: a status, `grant`, or the answer itself. /guarded/KEY answers with the number of the request to a bearer of a
valid token. /granted/KEY tells the requests for tokens, the refused ones, the uses of a refresh token that was replaced, and the
requests with each token.
"""
import base64
import collections
import json
import threading
import time
import urllib.parse

lock = threading.Lock()


class State:
    def __init__(self):
        self.requests, self.refused, self.reused, self.number, self.refresh = 0, 0, 0, 0, "first"
        self.ends, self.uses, self.last = {}, collections.Counter(), {}


states = collections.defaultdict(State)
SECRET = "s3cret/+&"


def token(handler, key, number, query):
    form = dict(urllib.parse.parse_qsl(handler.body.decode()))
    login = base64.b64decode(handler.headers.get("Authorization", "").removeprefix("Basic ")).decode()
    with lock:
        state = states[key]
        state.requests += 1
        state.last = {**form, "authorization": handler.headers.get("Authorization", "")}
        script = query.get("do", "grant").split(",")
        action = script[min(state.requests, len(script)) - 1]
        if action.isdigit():
            return handler.answer(int(action), b"{}", Content_Type="application/json")
        if action != "grant":
            return handler.answer(200, action.encode(), Content_Type="application/json")
        isKnown = [urllib.parse.unquote(part) for part in login.split(":")] == ["me", SECRET]
        isKnown = isKnown or form.get("client_id") == "me" and form.get("client_secret") == SECRET
        if form["grant_type"] == "refresh_token":
            isKnown = form["refresh_token"] == state.refresh
            if not isKnown:
                state.reused += 1
                state.ends = {}
        if not isKnown:
            state.refused += 1
            return handler.answer(401, b'{"error":"invalid_client"}', Content_Type="application/json")
        state.number += 1
        answer = {"access_token": "t%d.%s" % (state.number, key), "token_type": "Bearer"}
        answer["expires_in"] = float(query.get("lifetime", "3600"))
        state.ends[answer["access_token"]] = time.monotonic() + float(query.get("valid", query.get("lifetime", "3600")))
        if "rotate" in query and form["grant_type"] == "refresh_token":
            state.refresh = answer["refresh_token"] = "r%d.%s" % (state.number, key)
    handler.answer(200, json.dumps(answer).encode(), Content_Type="application/json")


def guarded(handler, key, number, query):
    name = handler.headers.get("Authorization", "").removeprefix("Bearer ")
    with lock:
        state = states[key]
        state.uses[name] += 1
        isValid = state.ends.get(name, 0) > time.monotonic()
    if isValid and "never" not in query:
        handler.answer(200, b"%d\n" % number)
    else:
        handler.answer(401, b"no")


def tell(handler, key, number, query):
    with lock:
        state = states[key]
        told = {"requests": state.requests, "refused": state.refused, "reused": state.reused, "last": state.last}
        handler.answer(200, json.dumps({**told, "uses": state.uses}).encode())
