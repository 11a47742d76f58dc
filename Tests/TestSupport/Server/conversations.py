"""WebSocket services that close the connection unless a client keeps to their conversation: /websocket/KEY?service=NAME.

Each sends one message of data, with the number of the connection, when the client has done its part, and then closes with 1000.
"""
import gzip
import json


class Broken(Exception):
    """The client does not keep to the conversation: the code to close with."""


def expect(found, wanted, code=4400):
    if found != wanted:
        raise Broken(code)


def graphql(say, hear, number):
    """https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md"""
    init = json.loads(hear())
    expect(init.get("type"), "connection_init")
    say({"type": "ping"})
    expect(json.loads(hear()), {"type": "pong"}, 4401)
    say({"type": "connection_ack"})
    expect(json.loads(hear()), {"id": "1", "type": "subscribe", "payload": {"query": "subscription { x }"}})
    say({"id": "1", "type": "next", "payload": {"data": {"x": number, "init": init.get("payload")}}})


def htx(say, hear, number):
    expect(json.loads(hear()), {"sub": "market.btcusdt.trade.detail"})
    for ping in (1492420473027, 1492420478029):
        say({"ping": ping}, zipped=True)
        expect(json.loads(hear()), {"pong": ping})
    say({"ch": "market.btcusdt.trade.detail", "tick": number}, zipped=True)


def deribit(say, hear, number):
    expect(json.loads(hear())["method"], "public/set_heartbeat")
    expect(json.loads(hear())["method"], "public/subscribe")
    say({"jsonrpc": "2.0", "method": "heartbeat", "params": {"type": "heartbeat"}})
    say({"jsonrpc": "2.0", "method": "heartbeat", "params": {"type": "test_request"}})
    expect(json.loads(hear()), {"jsonrpc": "2.0", "id": 8212, "method": "public/test", "params": {}})
    say({"jsonrpc": "2.0", "method": "subscription", "params": {"data": number}})


def crypto(say, hear, number):
    expect(json.loads(hear())["method"], "subscribe")
    for identifier in (1587523073344, 1587523078844):
        say({"id": identifier, "method": "public/heartbeat", "code": 0})
        expect(json.loads(hear()), {"id": identifier, "method": "public/respond-heartbeat"})
    say({"method": "subscribe", "result": {"data": [number]}})


def okx(say, hear, number):
    expect(json.loads(hear())["op"], "subscribe")
    expect(hear(), "ping")
    say("pong")
    say({"arg": {"channel": "trades"}, "data": [number]})


def signalr(say, hear, number):
    """https://github.com/dotnet/aspnetcore/blob/main/src/SignalR/docs/specs/HubProtocol.md: each text ends with U+001E."""
    expect(hear(), '{"protocol":"json","version":1}\x1e')
    say("{}\x1e")
    expect(hear(), '{"type":4,"invocationId":"1","target":"Stream","arguments":[]}\x1e')
    say('{"type":6}\x1e')
    expect(hear(), '{"type":6}\x1e')
    say('{"type":2,"invocationId":"1","item":%d}\x1e' % number)


def mute(say, hear, number):
    """Acknowledges nothing."""
    while True:
        say({"type": "other"})
        hear()


def greedy(say, hear, number):
    """Asks for answers without end."""
    while True:
        say({"ping": 1})


def converse(service, number, send, receive):
    """
    :param send: called with an opcode and a payload.
    :param receive: returns the next text of the client; raises OSError at the end.
    """
    def say(message, zipped=False):
        payload = (message if isinstance(message, str) else json.dumps(message)).encode()
        send(2, gzip.compress(payload)) if zipped else send(1, payload)

    try:
        globals()[service](say, receive, number)
        code = 1000
    except Broken as broken:
        code = broken.args[0]
    send(8, code.to_bytes(2, "big"))
