"""Clients that must not be affected: subscribers, some for each stream, until standard input ends.

Usage: readers.py SOCKET COUNT STREAM...

The events of each stream are consecutive numbers; every subscriber must receive each once, in order, on one
connection. Prints "ready" once all of them receive events. When its input ends, all wait for 100 more events.
Prints the number of correct connections, and the error of the first other one.
"""

import os
import selectors
import sys
import time

from crowd import Subscriber

SECONDS = 60


def main():
    path, count, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    readers = [Subscriber(path, name.encode()) for name in names for _ in range(count)]
    ready = selectors.DefaultSelector()
    for reader in readers:
        ready.register(reader.socket, selectors.EVENT_READ, reader)
    os.set_blocking(0, False)
    has_started, goals, deadline = False, None, None
    while True:
        for key, _ in ready.select(0.1):
            key.data.read()
            if key.data.mistake:
                ready.unregister(key.fileobj)
        if not has_started and all(reader.number is not None or reader.mistake for reader in readers):
            has_started = True
            print("ready", flush=True)
        if goals is None:
            try:
                if os.read(0, 1) == b"":
                    goals = [(reader, (reader.number or 0) + 100) for reader in readers]
                    deadline = time.monotonic() + SECONDS
            except BlockingIOError:
                pass
        elif all(reader.mistake or reader.number >= goal for reader, goal in goals):
            break
        elif time.monotonic() > deadline:
            for reader, goal in goals:
                if reader.number < goal:
                    reader.mistake = reader.mistake or f"it did not get to {goal}, but to {reader.number}"
            break
    mistakes = [reader.mistake for reader in readers if reader.mistake]
    print(f"{len(readers) - len(mistakes)} good", *mistakes[:1], sep="; ")


main()
