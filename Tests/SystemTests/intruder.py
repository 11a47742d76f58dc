"""A reader of a mapped stream that tries to change what it reads. Begins as root, and becomes another user than the daemon's.

Usage: intruder.py USER REGION PAGE CONTROL

The last three are descriptors: of the region, of the reader's waiting page, and of memory with the default mode, which was
opened for reading as the region is. Prints what it could do to the first two; to the third it must be able to write.
"""

import ctypes
import fcntl
import mmap
import os
import sys


def attempts(descriptor):
    """Ways to write to the memory of a descriptor, or to change its size or its rights."""
    path = f"/proc/self/fd/{descriptor}"
    yield "open for writing", lambda: os.write(os.open(path, os.O_WRONLY), b"x")
    yield "open for reading and writing", lambda: os.write(os.open(path, os.O_RDWR), b"x")
    yield "open and truncate", lambda: os.open(path, os.O_RDONLY | os.O_TRUNC)
    yield "truncate by name", lambda: os.truncate(path, 0)
    yield "write", lambda: os.pwrite(descriptor, b"x", 0)
    yield "map for writing", lambda: mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)[0:1]
    yield "allocate", lambda: os.posix_fallocate(descriptor, 0, 1 << 30)
    yield from of_its_size(descriptor)


def of_its_size(descriptor):
    yield "shrink", lambda: os.ftruncate(descriptor, 0)
    yield "grow", lambda: os.ftruncate(descriptor, 1 << 30)
    yield "change its mode", lambda: os.fchmod(descriptor, 0o666)
    yield "change its owner", lambda: os.fchown(descriptor, os.geteuid(), -1)
    for seal in ("WRITE", "FUTURE_WRITE", "GROW"):
        yield f"seal {seal}", lambda: fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS[seal])


SEALS = {"GROW": 4, "WRITE": 8, "FUTURE_WRITE": 16}  # of linux/fcntl.h


def succeeding(attempts):
    for name, attempt in attempts:
        try:
            attempt()
        except (OSError, ValueError):
            continue
        yield name


def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: its own descriptors are in /proc, as in a program that it starts


def main():
    user, region, page, control = map(int, sys.argv[1:])
    become(user)
    done = [f"region: {name}" for name in succeeding(attempts(region))]
    done += [f"page: {name}" for name in succeeding(of_its_size(page))]
    if not any(succeeding(attempts(control))):
        done.append("nothing, even of memory with the default mode: these are no attempts")
    print("; ".join(done) or "nothing")


if __name__ == "__main__":
    main()
