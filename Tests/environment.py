"""What tests require of the machine: packages of the Python Package Index and other large files, kept for the next run, and ports."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import socket
import subprocess
import sys
import venv

# In the user's cache, so that a fresh clone finds them. What is in it is named by what it was made of.
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "streamd-tests"


RESERVED = []


def reserve_port():
    """A port of 127.0.0.1 for a server that starts later, or again: until this process ends, nothing else gets it.

    The socket that holds it does not listen, so a server that sets SO_REUSEADDR, as all do, may listen on its port."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    RESERVED.append(holder)
    return holder.getsockname()[1]


@contextlib.contextmanager
def locked(name):
    """Only one process at a time makes what has this name."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare(name, requirements):
    """Installs the packages of a file, with hashes, into a virtual environment, unless the same Python has done so before.
    Returns the folder of its programs."""
    digest = hashlib.sha256(f"{sys.base_prefix}\n{sys.version}\n{requirements.read_text()}".encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    programs = folder / "bin"
    done = folder / "done"
    with locked(folder.name):
        if not done.exists():
            venv.create(folder, clear=True, with_pip=True)
            subprocess.run(
                [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary",
                 ":all:", "--require-hashes", "--requirement", requirements], check=True)
            done.touch()
    return programs
