"""A client of NATS, as small as reading the logs of a fleet's shards requires, and what their entries mean."""

import asyncio
import base64
import itertools
import json
import struct

ANSWER_SECONDS = 10
NO_MESSAGE = 10037


class Client:
    """A connection to one broker. Requests may be made at the same time."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def close(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.writer.close()

    @classmethod
    async def to(cls, port):
        client = cls()
        client.reader, client.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        await client.reader.readline()  # INFO
        client.writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB answer.test.* 1\r\n')
        client.waiting, client.numbers = {}, itertools.count()
        client.task = asyncio.create_task(client._receive())
        return client

    async def _receive(self):
        try:
            while line := await self.reader.readline():
                words = line.decode().split()
                if words and words[0] == "PING":
                    self.writer.write(b"PONG\r\n")
                elif words and words[0] in ("MSG", "HMSG"):
                    body = await self.reader.readexactly(int(words[-1]) + 2)
                    size = int(words[-2]) if words[0] == "HMSG" else 0
                    waiting = self.waiting.pop(int(words[1].rsplit(".", 1)[1]), None)
                    if waiting and not waiting.done():
                        waiting.set_result((body[:size].decode(), body[size:-2]))
        finally:
            for waiting in self.waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError("the broker has closed the connection"))

    async def request(self, subject, body=b""):
        """Returns the header of the answer, and its body."""
        number = next(self.numbers)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        self.writer.write(f"PUB {subject} answer.test.{number} {len(body)}\r\n".encode() + body + b"\r\n")
        try:
            return await asyncio.wait_for(self.waiting[number], ANSWER_SECONDS)
        finally:
            self.waiting.pop(number, None)

    async def information(self, stream):
        """What the broker that leads a JetStream stream says of it; raises an exception without such a broker."""
        _, body = await self.request(f"$JS.API.STREAM.INFO.{stream}")
        answer = json.loads(body or b"{}")
        if "state" not in answer:
            raise ConnectionError(f"no information about {stream}: {answer}")
        return answer

    async def entries(self, stream, first, last):
        """Reads entries from the replica that leads: subject and bytes by sequence number, without those that are not there."""
        found = {}
        for start in range(first, last + 1, 256):
            numbers = range(start, min(last + 1, start + 256))
            answers = await asyncio.gather(*(
                self.request(f"$JS.API.STREAM.MSG.GET.{stream}", json.dumps({"seq": number}).encode()) for number in numbers))
            for number, (_, body) in zip(numbers, answers):
                answer = json.loads(body or b"{}")
                if "message" in answer:
                    found[number] = answer["message"]["subject"], base64.b64decode(answer["message"].get("data", ""))
                elif answer.get("error", {}).get("err_code") != NO_MESSAGE:
                    raise ConnectionError(f"{stream}, {number}: {answer}")
        return found


def fields(data):
    """The fields of a record of saved state, by tag."""
    found = {}
    while data:
        tag, size = struct.unpack_from(">HI", data)
        found[tag], data = data[6:6 + size], data[6 + size:]
    return found


def number(data):
    return int.from_bytes(data or b"", "big")


def rival_claims(entries):
    """Claims that were appended after the same entry, as sentences: one of them at most may be stored."""
    claims = {}
    for sequence in sorted(entries):
        entry = fields(entries[sequence][1][4:])
        if not number(entry.get(5)):
            rival = claims.setdefault((entry.get(1), entry.get(2)), sequence)
            if rival != sequence:
                yield f"the claims {rival} and {sequence} follow the same entry"


def records(entries):
    """The events of a shard's entries, including those of void records: stream, id, time in microseconds, bytes."""
    parts, previous = [], None
    for sequence in sorted(entries):
        entry = entries[sequence][1]
        assert entry[:4] == b"sfl\x01", f"entry {sequence} is none of a fleet"
        entry = fields(entry[4:])
        term, index = number(entry.get(5)), number(entry.get(6))
        if not term:
            continue
        if index == 0:
            parts = []
        elif previous != (term, index - 1):
            continue
        previous = term, index
        parts.append(entry.get(8, b""))
        if not number(entry.get(7)):
            continue
        record = fields(b"".join(parts))
        previous, parts = None, []
        if not record:  # a leader's sign of life
            continue
        stream, identifier, time = record[1].decode(), number(record.get(3)), number(record.get(4))
        events = record.get(5, b"")
        while events:
            size = number(events[:4])
            yield stream, identifier, time, events[4:4 + size]
            identifier, events = identifier + 1, events[4 + size:]
