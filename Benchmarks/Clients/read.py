"""read.py SOCKET COUNT: reads so many stored events of the stream `b`, and prints the seconds that it took."""

import itertools
import sys
import time

import streamd

address, count = sys.argv[1], int(sys.argv[2])
with streamd.connect(address) as connection:
    start, last = time.monotonic(), None
    for event in itertools.islice(connection.subscribe("b", last=count), count):
        if event.gap or len(event.data) != 64 or last not in (None, event.id - 1):
            sys.exit(f"event {event.id} follows {last}")
        last = event.id
    print(time.monotonic() - start)
