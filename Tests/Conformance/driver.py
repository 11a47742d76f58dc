"""The Python package as README.md beside this file describes a driver."""

import datetime
import re
import sys

import streamd

KINDS = {
    streamd.NotFound: "not-found",
    streamd.AccessDenied: "access-denied",
    streamd.Lagged: "lagged",
    streamd.Invalid: "invalid",
    streamd.NotSupported: "not-supported",
    streamd.LimitExceeded: "limit",
    streamd.Canceled: "canceled",
    streamd.SourceFailed: "source-failed",
    streamd.ConnectionLost: "connection-lost",
    streamd.ProtocolError: "protocol",
}


def encoded(data):
    return re.sub(rb"[^0-9A-Za-z]", lambda byte: b"%%%02X" % ord(byte[0]), data).decode()


def decoded(text):
    return re.sub(rb"%(..)", lambda digits: bytes.fromhex(digits[1].decode()), text.encode())


def failure(verb, error):
    reason = f" reason={error.reason:d}" if error.reason else ""
    return f"{verb} kind={KINDS.get(type(error), 'other')}{reason} sentence={encoded(str(error).encode())}"


def described(event):
    gap = "unknown" if event.gap is None else event.gap
    data = "" if event.is_marker else f" data={encoded(event.data)}"
    return f"{'marker' if event.is_marker else 'event'} id={event.id} time={event.time_us} left_out={event.left_out} gap={gap}{data}"


def beginning(start, number):
    """The option of subscribe() and map() that says where to begin."""
    match start:
        case "id":
            return {"since": number}
        case "time":
            return {"since": datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(microseconds=number)}
        case "ago":
            return {"since": datetime.timedelta(microseconds=number)}
        case "last":
            return {"last": number}
    return {"start": start}


def options(words):
    """What subscriptions and maps have."""
    place = beginning(words.get("from", b"replay").decode(), int(words.get("since", 0)))
    return {**place, **{name: words[name].decode() for name in ("on_lag", "where") if name in words}, "reconnect": "reconnect" in words}


class Driver:
    def __init__(self):
        self.objects = {}

    def connect(self, words):
        self.objects[words["connection"]] = streamd.connect(
            words["address"].decode(), token=words["token"].decode() if "token" in words else None)
        return "ok"

    def subscribe(self, words):
        self.objects[words["subscription"]] = self.objects[words["connection"]].subscribe(
            words["stream"].decode(), marker="marker" in words, credit=int(words["window"]), **options(words))
        return "ok"

    def map(self, words):
        self.objects[words["subscription"]] = self.objects[words["connection"]].map(words["stream"].decode(), **options(words))
        return "ok"

    def next(self, words):
        try:
            return described(self.objects[words["subscription"]].next(int(words["wait"]) / 1000))
        except streamd.Timeout:
            return "nothing"
        except EOFError:
            return "end kind=complete"
        except streamd.Error as error:
            return failure("end", error)

    def get(self, words):
        return described(self.objects[words["connection"]].get(words["stream"].decode(), timeout=int(words["wait"]) / 1000))

    def make(self, words):
        self.objects[words["connection"]].make(words["stream"].decode(), timeout=int(words["wait"]) / 1000)
        return "ok"

    def forget(self, words):
        self.objects[words["connection"]].forget(words["stream"].decode(), timeout=int(words["wait"]) / 1000)
        return "ok"

    def ask(self, words):
        connection, wait = self.objects[words["connection"]], int(words["wait"]) / 1000
        return f"made data={encoded(connection.request(words['stream'].decode(), words['data'], timeout=wait).encode())}"

    def publisher(self, words):
        self.objects[words["publisher"]] = self.objects[words["connection"]].publisher(words["stream"].decode(), name=words.get("name"))
        return "ok"

    def publish(self, words):
        self.objects[words["publisher"]].send(words["data"])
        return "ok"

    def finish(self, words):
        self.objects[words["publisher"]].flush(int(words["wait"]) / 1000)
        return "ok"

    def confirmed(self, words):
        return f"number number={self.objects[words['publisher']].confirmed}"

    def close(self, words):
        [number] = words.values()
        self.objects.pop(number).close()
        return "ok"

    def answer(self, line):
        verb, *pairs = line.split()
        words = {key: decoded(value) for key, _, value in (pair.partition("=") for pair in pairs)}
        try:
            return getattr(self, verb)(words)
        except streamd.Timeout:
            return "nothing"
        except streamd.Error as error:
            return failure("error", error)


def main():
    driver = Driver()
    print("conformance 1 last confirmed keepalive map token reasons commands answers", flush=True)
    for line in sys.stdin:
        if line.strip() == "quit":
            print("ok", flush=True)
            return
        print(driver.answer(line), flush=True)


if __name__ == "__main__":
    main()
