"""manager.py STREAMD CONFIGURATION SOCKET: starts the daemon as a service manager does, with its socket, and keeps its descriptors over
restarts, so that its connections continue. Each line of standard input restarts it; a line of standard output says that it serves."""

import array
import os
import select
import signal
import socket
import sys

program, configuration, path = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(128)
notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notifications.bind(path + ".notify")
kept = []  # names and descriptors


def start():
    passed = [*kept, ("socket", listener.fileno())]
    process = os.fork()
    if process:
        return process
    for index, high in enumerate([os.dup2(each, 1000 + index) for index, (_, each) in enumerate(passed)]):
        os.dup2(high, 3 + index)
        os.close(high)
    os.execve(program, [program, "--config", configuration], {
        **os.environ, "NOTIFY_SOCKET": path + ".notify", "FDSTORE": "500", "STREAMD_BOOT_ID": "1" * 32, "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": str(len(passed)), "LISTEN_FDNAMES": ":".join(name for name, _ in passed)})


def receive():
    """Handles one notification. Returns its lines."""
    text, ancillary, *_ = notifications.recvmsg(65536, socket.CMSG_SPACE(4 * 253))
    lines = text.decode().split("\n")
    name = next((line[7:] for line in lines if line.startswith("FDNAME=")), "stored")
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data[:len(data) - len(data) % 4])
    if "FDSTORE=1" in lines:
        kept.extend((name, descriptor) for descriptor in descriptors)
    else:
        for descriptor in descriptors:  # of a barrier, which waits for that
            os.close(descriptor)
    if "FDSTOREREMOVE=1" in lines:
        for pair in [pair for pair in kept if pair[0] == name]:
            os.close(pair[1])
            kept.remove(pair)
    return lines


process, is_restarting = start(), False
while True:
    ended = os.pidfd_open(process)
    has_ended = False
    while not has_ended:
        ready, _, _ = select.select([notifications, ended, *([] if is_restarting else [sys.stdin])], [], [])
        if notifications in ready:  # before the end: what it has stored is for the next process
            if "READY=1" in receive():
                print("serves", flush=True)
        elif ended in ready:
            has_ended = True
        elif not sys.stdin.readline():
            os.kill(process, signal.SIGKILL)
            sys.exit()
        else:
            is_restarting = True
            os.kill(process, signal.SIGTERM)
    os.close(ended)
    os.waitpid(process, 0)
    if not is_restarting:
        sys.exit("streamd has ended")
    process, is_restarting = start(), False
