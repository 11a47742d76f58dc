"""A socket before that of the daemon: it counts frames, cuts connections, also in the middle of a frame, and adds frames. It passes
descriptors on with the frames that bring them."""

import contextlib
import dataclasses
import os
import socket
import threading

from daemon import Failure

SETUP, KEEPALIVE, REQUEST_RESPONSE, REQUEST_STREAM, REQUEST_CHANNEL, REQUEST_N, CANCEL, PAYLOAD, ERROR = 1, 3, 4, 6, 7, 8, 9, 10, 11

# A frame arrives within milliseconds; a slow machine gets this.
FRAME_SECONDS = 30


@dataclasses.dataclass
class Frame:
    """The part of a frame that checks compare."""

    stream: int
    kind: int
    flags: int
    credit: int  # of a request or REQUEST_N
    announces_reasons: bool  # of SETUP

    @classmethod
    def read(cls, data):
        head = int.from_bytes(data[4:6], "big")
        announces = head >> 10 == SETUP and data.endswith(b'{"reasons":true}')
        return cls(int.from_bytes(data[:4], "big"), head >> 10, head & 0x3FF, int.from_bytes(data[6:10], "big"), announces)


def encoded(stream, kind, flags=0, body=b""):
    """A frame with its length."""
    frame = stream.to_bytes(4, "big") + (kind << 10 | flags).to_bytes(2, "big") + body
    return len(frame).to_bytes(3, "big") + frame


def frames_of(connection):
    """The frames that come, with their lengths, and the descriptors that came with the first byte of each.

    A read ends with the message that has descriptors, and the daemon sends the frame that brings them alone: it is the last one."""
    unread, passed, owner = bytearray(), [], -1
    while True:
        data, descriptors, *_ = socket.recv_fds(connection, 1 << 16, 2)
        if not data:
            return
        unread += data
        start, frames = 0, []
        while len(unread) - start >= 3 and (end := start + 3 + int.from_bytes(unread[start:start + 3], "big")) <= len(unread):
            frames.append((start, end))
            start = end
        if descriptors:
            passed, owner = descriptors, start if start < len(unread) else frames[-1][0]
        for first, end in frames:
            yield bytes(unread[first:end]), passed if first == owner else []
        del unread[:start]
        owner -= start


def send(connection, data, descriptors):
    sent = socket.send_fds(connection, [data], descriptors) if descriptors else 0
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(data[sent:])


class Proxy:
    def __init__(self, path, upstream):
        self.path, self.upstream = path, upstream
        self.pairs = []  # of sockets: the client's, the daemon's
        self.sent = []  # the frames of clients
        self.countdowns = {}
        self.changed = threading.Condition()
        self.admit()

    def admit(self):
        """Accepts connections, again after block()."""
        self.listener = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.listener.bind(self.path)
        self.listener.listen(16)
        threading.Thread(target=self.accept, args=[self.listener], daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.upstream)
            except OSError:
                client.close()
                continue
            with self.changed:
                self.pairs.append((client, server))
            for words in ((client, server, "client"), (server, client, "daemon")):
                threading.Thread(target=self.relay, args=words, daemon=True).start()

    def relay(self, one, other, side):
        with contextlib.suppress(OSError):
            for data, descriptors in frames_of(one):
                frame = Frame.read(data[3:])
                with self.changed:
                    if side == "client":
                        self.sent.append(frame)
                        self.changed.notify_all()
                    is_cut = self.ends_here(frame, side)
                try:
                    send(other, data[:len(data) // 2] if is_cut else data, descriptors)
                except OSError:
                    is_cut = side == "daemon"  # what a daemon has sent before it ended is still for the client
                if is_cut:
                    break
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def ends_here(self, frame, side):
        if frame.kind != PAYLOAD or side not in self.countdowns:
            return False
        self.countdowns[side] -= 1
        if self.countdowns[side] > 0:
            return False
        del self.countdowns[side]
        return True

    def cut_within(self, count, side="daemon"):
        """Cuts the connection within the PAYLOAD with this number, counted from now, that the daemon or the client sends."""
        with self.changed:
            self.countdowns[side] = count

    def cut(self):
        with self.changed:
            for pair in self.pairs:
                for side in pair:
                    with contextlib.suppress(OSError):
                        side.shutdown(socket.SHUT_RDWR)
            self.pairs = []

    def block(self):
        """Cuts, and refuses connections."""
        self.close()
        os.unlink(self.path)
        self.cut()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def inject(self, frame):
        """Sends the newest client a frame that the daemon has not sent."""
        with self.changed:
            self.pairs[-1][0].sendall(frame)

    def cancel(self, request, code, sentence):
        """Ends a request of the newest client with an ERROR, and for the daemon with a CANCEL."""
        with self.changed:
            client, daemon = self.pairs[-1]
            daemon.sendall(encoded(request.stream, CANCEL))
            client.sendall(encoded(request.stream, ERROR, 0, code.to_bytes(4, "big") + sentence.encode()))

    def count(self, kind):
        return sum(frame.kind == kind for frame in self.sent)

    def wait_for(self, kind, count=1):
        """Returns the frame of clients with this kind and number, once it was sent."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.count(kind) >= count, FRAME_SECONDS):
                raise Failure(f"the client has sent {self.count(kind)} frames of type {kind}, not {count}")
            return [frame for frame in self.sent if frame.kind == kind][count - 1]

    def granted(self):
        """The credit of all requests."""
        with self.changed:
            return sum(frame.credit for frame in self.sent if frame.kind in (REQUEST_STREAM, REQUEST_N))
