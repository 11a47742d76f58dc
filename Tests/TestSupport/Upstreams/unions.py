"""Upstreams that take many values at a time, and notice who asks for too many, or too often.

/quotes/KEY?symbols=A,B: {"quotes": [{"symbol": …, "n": the number of the request}, …]}, for at most 100 symbols, else 413. A symbol that
begins with "bad" is 400, one with "none" has no part, and "extra" has a part that nobody asked for. With many=N, N parts more.

/exchange/KEY: a WebSocket with {"op": "subscribe", "args": ["trade.A", …]} and "unsubscribe". Each symbol has an event with a subscription
and then with others in turn, one each 20 ms: {"data": {"s": …, "n": …}}. A connection has at most 200 symbols, and takes 10 messages, and 10 more
for each second since it began: otherwise it is closed with 1008. (Messages that this busy server took late may come at once.) Messages are acknowledged; a symbol that begins with "bad" is refused, and one with "mute" lost the first time.

/flow/KEY?symbols=A,B: see `flow`.

/unioned/KEY tells what was asked; with cut=1 it ends all connections of the exchange.
"""
import base64
import collections
import hashlib
import json
import threading
import time

import websocket

lock = threading.RLock()


class State:
    def __init__(self):
        self.requests, self.connections, self.broken = [], 0, 0
        self.subscribed, self.unsubscribed = collections.Counter(), collections.Counter()
        self.open = []


states = collections.defaultdict(State)


def quotes(handler, key, number, query):
    symbols = [symbol for symbol in query.get("symbols", "").split(",") if symbol]
    with lock:
        states[key].requests.append([time.time(), symbols])
    if len(symbols) > 100:
        return handler.answer(413, b"too many")
    if any(symbol.startswith("bad") for symbol in symbols) or "refuse" in query:
        return handler.answer(400, b"bad symbol")
    found = [symbol for symbol in symbols if not symbol.startswith("none")] + (["extra"] if "extra" in query else [])
    found += ["x%d" % index for index in range(int(query.get("many", "0")))]
    handler.answer(200, json.dumps({"quotes": [{"symbol": symbol, "n": number} for symbol in found]}).encode())


class Connection:
    def __init__(self, handler, state):
        self.handler, self.state, self.symbols, self.is_open, self.count = handler, state, set(), True, 0
        self.begun, self.taken = time.monotonic(), 0

    def send(self, opcode, payload):
        with lock:
            if self.is_open:
                try:
                    self.handler.wfile.write(websocket.frame(opcode, payload))
                    self.handler.wfile.flush()
                except OSError:
                    self.is_open = False

    def say(self, message):
        self.send(1, json.dumps(message).encode())

    def tell(self, symbols):
        for symbol in symbols:
            self.count += 1
            self.say({"data": {"s": symbol, "n": self.count}})

    def tick(self):
        turn = 0
        while self.is_open:
            time.sleep(0.02)
            turn += 1
            with lock:
                symbols = sorted(self.symbols)
                self.tell(symbols[turn % len(symbols):][:1] if symbols else [])

    def close(self):
        self.send(8, (1008).to_bytes(2, "big"))
        with lock:
            self.state.broken += 1
            self.is_open = False

    def take(self, message):
        """False: the connection ends."""
        self.taken += 1
        symbols = [argument.removeprefix("trade.") for argument in message["args"]]
        with lock:
            if message["op"] == "unsubscribe":
                self.symbols -= set(symbols)
                self.state.unsubscribed.update(symbols)
            else:
                bad = [symbol for symbol in symbols if symbol.startswith("bad")]
                lost = [each for each in symbols if each.startswith("mute") and not self.state.subscribed[each]]
                self.state.subscribed.update(symbols)
                new = set(symbols) - set(bad) - set(lost)
                self.symbols |= new
                for symbol in bad:
                    self.say({"error": {"symbol": symbol}})
                self.tell(sorted(new))
            self.say({"event": message["op"] + "d", "args": message["args"]})
        return self.taken <= 10 * (time.monotonic() - self.begun + 1) and len(self.symbols) <= 200


def exchange(handler, key, number, query):
    nonce = handler.headers.get("Sec-WebSocket-Key", "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(nonce.encode()).digest()).decode()
    head = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: " + accept]
    handler.close_connection = True
    handler.wfile.write(("\r\n".join(head) + "\r\n\r\n").encode())
    handler.wfile.flush()
    state = states[key]
    connection = Connection(handler, state)
    with lock:
        state.connections += 1
        state.open.append(connection)
    threading.Thread(target=connection.tick, daemon=True).start()
    try:
        while connection.is_open and (found := websocket.read_frame(handler.rfile)):
            if found[0] == 9:
                connection.send(10, found[1])
            if found[0] == 8:
                connection.send(8, found[1])
                break
            if found[0] == 1 and not connection.take(json.loads(found[1])):
                connection.close()
    except OSError:
        pass
    with lock:
        connection.is_open = False
        state.open.remove(connection)


def tell(handler, key, number, query):
    with lock:
        state = states[key]
        if "cut" in query:
            for connection in state.open:
                connection.is_open = False
                connection.handler.connection.shutdown(2)
        values = [symbol for connection in state.open for symbol in getattr(connection, "symbols", [])]
        handler.answer(200, json.dumps({
            "requests": [symbols for _, symbols in state.requests], "connections": state.connections, "open": len(state.open),
            "broken": state.broken, "values": sorted(values), "subscribed": dict(state.subscribed),
            "unsubscribed": dict(state.unsubscribed),
        }).encode())


def flow(handler, key, number, query):
    """/flow/KEY?symbols=A,B: server-sent events with ids, one each 20 ms: {"quotes": [{"s": …, "n": the id}, …]}. After a Last-Event-ID
    come those that follow it."""
    symbols = [symbol for symbol in query.get("symbols", "").split(",") if symbol]
    with lock:
        state = states[key]
        state.requests.append([time.time(), symbols])
        state.connections += 1
        state.began = getattr(state, "began", None) or time.monotonic()
        state.open.append(handler)
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True

    def newest():
        return int((time.monotonic() - state.began) / 0.02)

    last = int(handler.headers.get("Last-Event-ID") or newest())
    try:
        while True:
            while last < newest():
                last += 1
                data = json.dumps({"quotes": [{"s": symbol, "n": last} for symbol in symbols]})
                handler.wfile.write(b"id: %d\ndata: %s\n\n" % (last, data.encode()))
            handler.wfile.flush()
            time.sleep(0.005)
    except OSError:
        pass
    with lock:
        state.open.remove(handler)
