"""read.py SOCKET COUNT [map]: reads so many stored events of the stream `b`, and prints the seconds that it took.

With `map`, the stream is mapped, and is read in batches."""

import itertools
import sys
import time

import streamd


def events(connection):
    if sys.argv[3:] != ["map"]:
        return connection.subscribe("b", last=count)
    mapped = connection.map("b", last=count)
    return itertools.chain.from_iterable(iter(mapped.batch, None))


address, count = sys.argv[1], int(sys.argv[2])
with streamd.connect(address) as connection:
    start, last = time.monotonic(), None
    for event in itertools.islice(events(connection), count):
        if event.gap or len(event.data) != 64 or last not in (None, event.id - 1):
            sys.exit(f"event {event.id} follows {last}")
        last = event.id
    print(time.monotonic() - start)
