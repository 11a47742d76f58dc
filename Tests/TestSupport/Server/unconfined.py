#!/usr/bin/env python3
"""Stands in for the process that runs jq's programs where the kernel refuses to take its rights away: says so, and gives
each event back as it is. A file of the project, as a test that writes a program and runs it at once may find it busy.
"""
import os
import struct


def read(count):
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            raise SystemExit
        data += piece
    return data


def message():
    return read(struct.unpack("I", read(4))[0])


def answer(event):
    body = b"\0\1" + struct.pack("I", len(event)) + event
    os.write(0, struct.pack("I", len(body)) + body)


for _ in range(5):  # the variables and the programs
    message()
answer(b"seccomp: Function not implemented")
while True:
    answer(message())
