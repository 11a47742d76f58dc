"""Clients that must not be affected: subscribers, each with one connection, some over HTTP, and a publisher, until
standard input ends.

Usage: crowd.py SOCKET COUNT COUNT_OVER_HTTP STREAM

The publisher publishes a number every 20 ms, within its credit; every subscriber must receive each event once, in
order, and each number, on one connection. Prints "ready" once all subscribers receive events. When its input
ends, the publisher completes, and all wait for the last number. Prints the number of correct connections, and the error
of the first other one.
"""

import os
import selectors
import socket
import struct
import sys
import time

SETUP, REQUEST_RESPONSE, REQUEST_STREAM, REQUEST_CHANNEL, REQUEST_N, PAYLOAD, ERROR, KEEPALIVE = 1, 4, 6, 7, 8, 10, 11, 3
METADATA, COMPLETE, NEXT, RESPOND = 0x100, 0x40, 0x20, 0x80
UNLIMITED = 0x7FFFFFFF


def frame(stream, kind, flags, body):
    body = struct.pack(">IH", stream, kind << 10 | flags) + body
    return struct.pack(">I", len(body))[1:] + body


def setup():
    mime = b"text/plain"
    body = struct.pack(">HHII", 1, 0, 20_000, 90_000) + 2 * (bytes([len(mime)]) + mime)
    return frame(0, SETUP, 0, body)


def routed(name, data):
    return struct.pack(">I", len(name))[1:] + name + data


class Client:
    def __init__(self, path, greeting=setup()):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.sendall(greeting)
        self.socket.setblocking(False)
        self.input = b""
        self.mistake = None

    def read(self):
        try:
            arrived = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError as error:
            arrived, self.mistake = b"", self.mistake or str(error)
        if not arrived:
            self.mistake = self.mistake or "its connection was closed"
            return
        self.input += arrived
        self.parse()

    def parse(self):
        start = 0
        while len(self.input) >= start + 3:
            length = int.from_bytes(self.input[start:start + 3], "big")
            if len(self.input) < start + 3 + length:
                break
            stream, kind = struct.unpack_from(">IH", self.input, start + 3)
            self.receive(kind >> 10, kind & 0x3FF, self.input[start + 9:start + 3 + length])
            start += 3 + length
        self.input = self.input[start:]

    def receive(self, kind, flags, body):
        if kind == ERROR:
            self.mistake = self.mistake or "it was told: " + body[4:].decode()


class Counter:
    """Checks that the ids and the numbers of events are consecutive."""

    id = number = None

    def count(self, event, number):
        if self.id is not None and (event, number) != (self.id + 1, self.number + 1):
            self.mistake = self.mistake or f"after {self.id} ({self.number}) came {event} ({number})"
        self.id, self.number = event, number


class Subscriber(Client, Counter):
    def __init__(self, path, name):
        super().__init__(path)
        request = struct.pack(">I", UNLIMITED) + routed(name, b'{"from":"new"}')
        self.socket.sendall(frame(1, REQUEST_STREAM, METADATA, request))

    def receive(self, kind, flags, body):
        super().receive(kind, flags, body)
        if kind != PAYLOAD or not flags & NEXT:
            return
        (event,) = struct.unpack_from(">Q", body, 3)
        self.count(event, int(body[19:]))


class EventStream(Client, Counter):
    """A response of server-sent events, in chunks."""

    def __init__(self, path, name):
        super().__init__(path, b"GET /streams/%s?as=sse&from=new HTTP/1.1\r\nHost: streamd\r\n\r\n" % name)
        self.has_head, self.text = False, b""

    def parse(self):
        if not self.has_head:
            head, end, rest = self.input.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 200 "):
                self.mistake = self.mistake or f"the response is: {head.decode()}"
            self.has_head, self.input = True, rest
        while (end := self.input.find(b"\r\n")) >= 0:
            start, size = end + 2, int(self.input[:end], 16)
            if len(self.input) < start + size + 2:
                break
            if size == 0:
                self.mistake = self.mistake or "its response has ended"
            self.text += self.input[start:start + size]
            self.input = self.input[start + size + 2:]
        *events, self.text = self.text.split(b"\n\n")
        for event in events:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if not line.startswith(b":"))
            if b"event" in fields:
                self.mistake = self.mistake or f"it was told: {event.decode()}"
            elif b"id" in fields:
                self.count(int(fields[b"id"]), int(fields[b"data"]))


class Publisher(Client):
    def __init__(self, path, name):
        super().__init__(path)
        self.number = self.credit = 0
        self.is_done = False
        self.output = bytearray(frame(1, REQUEST_CHANNEL, METADATA, struct.pack(">I", UNLIMITED) + routed(name, b"0")))

    def send(self):
        """Sends what there is room for: between two processes of the daemon nobody reads."""
        try:
            while self.output:
                del self.output[:self.socket.send(self.output)]
        except OSError:
            pass  # of a connection that has ended, `read` finds it

    def publish(self):
        if self.credit > 0 and not self.output:
            self.credit -= 1
            self.number += 1
            self.output += frame(1, PAYLOAD, NEXT, b"%d" % self.number)

    def complete(self):
        self.output += frame(1, PAYLOAD, COMPLETE, b"")

    def receive(self, kind, flags, body):
        super().receive(kind, flags, body)
        if kind == REQUEST_N:
            self.credit += struct.unpack(">I", body)[0]
        self.is_done |= kind == PAYLOAD and bool(flags & COMPLETE)


def main():
    path, count, http_count, name = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
    ready = selectors.DefaultSelector()
    subscribers = [Subscriber(path, name) for _ in range(count)]
    subscribers += [EventStream(path, name) for _ in range(http_count)]
    publisher = Publisher(path, name)
    clients = {client.socket: client for client in [*subscribers, publisher]}
    for client in clients.values():
        ready.register(client.socket, selectors.EVENT_READ)
    os.set_blocking(0, False)
    due, has_started, ends_at = time.monotonic(), False, None
    while True:
        for key, _ in ready.select(max(0, due - time.monotonic())):
            client = clients[key.fileobj]
            client.read()
            if client.mistake:
                ready.unregister(client.socket)
        publisher.send()
        now = time.monotonic()
        if not has_started and all(subscriber.number is not None or subscriber.mistake for subscriber in subscribers):
            has_started = True
            print("ready", flush=True)
        if ends_at is None:
            if now >= due:
                publisher.publish()
                due = now + 0.02
            try:
                if os.read(0, 1) == b"":
                    publisher.complete()
                    ends_at = now + 60
            except BlockingIOError:
                pass
        else:
            due = now + 0.1
            if publisher.is_done and all(one.mistake or one.number == publisher.number for one in subscribers):
                break
            if now > ends_at:
                for one in [*subscribers, publisher]:
                    one.mistake = one.mistake or f"it did not get to {publisher.number}, but to {one.number}"
                break
    mistakes = [client.mistake for client in clients.values() if client.mistake]
    print(f"{len(clients) - len(mistakes)} good, {publisher.number} published", *mistakes[:1], sep="; ")


if __name__ == "__main__":
    main()
