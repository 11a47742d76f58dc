"""A container with its own systemd: created, booted, used, and removed completely."""

import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from environment import CACHE, locked

SUITE = "bookworm"

# Its packages: systemd, also for users, the libraries that the programs are linked against, a client, and Python for the package
# python3-streamd. No Swift, as on a user's machine.
PACKAGES = [
    "ca-certificates", "curl", "dbus", "dbus-user-session", "libcurl4", "libjq1", "libpam-systemd", "libstdc++6",
    "libsystemd0", "python3", "systemd-sysv",
    # What a reader of the documents has (Tests/PackageTests).
    "gcc", "libc6-dev", "make", "pkg-config", "sudo",
]

# A boot takes a few seconds here; a slow machine gets this.
BOOT_SECONDS = 180
COMMAND_SECONDS = 120

# Security updates reach the containers within that time.
MONTH_SECONDS = 30 * 86400


class Failure(Exception):
    """A failed check, as one sentence."""


def image(suite=SUITE) -> pathlib.Path:
    """The root file system as a tar archive, made at most once a month; a Failure if it cannot be made."""
    key = hashlib.sha256(" ".join([suite, *PACKAGES]).encode()).hexdigest()[:12]
    archive = CACHE / f"root-{suite}-{key}.tar"
    with locked(archive.name):
        if not archive.exists() or time.time() - archive.stat().st_mtime > MONTH_SECONDS:
            make_image(archive, suite)
    return archive


def make_image(archive, suite):
    unfinished = archive.with_suffix(".unfinished.tar")
    done = subprocess.run(
        ["timeout", "15m", "mmdebstrap", "--quiet", "--variant=minbase", "--include=" + ",".join(PACKAGES), suite,
         unfinished]
        + [source.replace(SUITE, suite) for source in package_sources()],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise Failure(f"no root file system of {suite}: mmdebstrap ended with {done.returncode}: {done.stderr[-2000:]}")
    unfinished.rename(archive)


def package_sources() -> list[str]:
    """This machine's own sources of Debian packages, as one-line sources; none if it is not a Debian of the
    suite `SUITE`: mmdebstrap then has its own default."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
         "Created-By: Packages", "Origin: Debian"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()
    return sorted({line for line in listed if SUITE in line.split()[2] and line.split()[3] == "main"})


class ControlGroup:
    """A separate control group under the caller's, in every hierarchy that a systemd manages: containers are independent,
    and groups that the inner systemd creates are removed with it."""

    def __init__(self, name: str):
        self.folders = []
        mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for _, mount, kind, options, *_ in mounts:
                is_named = kind == "cgroup" and controllers == "name=systemd" and controllers in options.split(",")
                if is_named or (kind == "cgroup2" and not controllers):
                    folder = pathlib.Path(mount, path.lstrip("/"), name)
                    folder.mkdir()
                    self.folders.append(folder)
                    break

    def enter(self):
        """Moves the calling process into it."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def remove(self):
        """Removes it after its processes have ended; the kernel may still be removing the last of them."""
        for folder in self.folders:
            for path, _, _ in os.walk(folder, topdown=False):
                eventually(f"{path} is empty", lambda: try_rmdir(path))


def try_rmdir(path):
    try:
        os.rmdir(path)
        return True
    except OSError:
        return False


def eventually(what: str, condition, seconds=60):
    """Waits until `condition()` returns a true value, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Container:
    """For use in a `with`, which removes everything at its end. `root` may be changed before `boot()`, and after."""

    def __init__(self, archive: pathlib.Path, folder: pathlib.Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="container-", dir=folder))
        self.name = f"streamd-test-{os.getpid()}"
        self.root = self.folder / "root"
        self.group = None
        self.process = None
        self.leader = None
        try:
            self.root.mkdir()
            subprocess.run(["tar", "-x", "-f", archive, "-C", self.root, "--numeric-owner"], check=True)
        except BaseException:
            self.remove()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def boot(self):
        self.group = self.group or ControlGroup(self.name)
        console = open(self.folder / "console", "ab")
        # Works without a systemd on the host: not registered anywhere, in the control group that is created here. Ends with
        # this process, however that ends.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "systemd-nspawn", "--quiet", "-D", self.root, f"--machine={self.name}",
             "--boot", "--register=no", "--keep-unit", "--private-network", "--console=pipe"],
            stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=self.group.enter,
        )
        deadline = time.monotonic() + BOOT_SECONDS
        state = "no answer"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            self.leader = self.find_leader()
            if self.leader:
                state = self.run("systemctl", "is-system-running", check=False).strip()
                if state in ("running", "degraded"):
                    return
            time.sleep(0.2)
        tail = (self.folder / "console").read_text(errors="replace")[-2000:]
        raise Failure(f"the container did not come up ({state}); the end of its console:\n{tail}")

    def reboot(self):
        """With --keep-unit, systemd-nspawn ends at a reboot, and expects to be started again."""
        self.attempt("systemctl", "reboot")
        self.process.wait(timeout=BOOT_SECONDS)
        self.boot()

    def find_leader(self):
        """This machine's id of the container's process 1; None until that is systemd."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            try:
                if os.readlink(f"/proc/{child}/exe").endswith("/systemd/systemd"):
                    return int(child)
            except OSError:
                continue
        return None

    def enter(self, *command):
        # This machine's folder for temporary files need not exist there.
        return ["nsenter", "--target", str(self.leader), "--all", "--", "env", "--unset=TMPDIR", *map(str, command)]

    def attempt(self, *command, seconds=COMMAND_SECONDS):
        """A command in the container, which may fail: see subprocess.run. In a separate session, because it could signal
        its process group."""
        return subprocess.run(
            self.enter(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
            start_new_session=True)

    def run(self, *command, check=True, seconds=COMMAND_SECONDS):
        """Standard output of a command in the container; with `check`, its failure is a Failure."""
        done = self.attempt(*command, seconds=seconds)
        if check and done.returncode != 0:
            raise Failure(f"`{' '.join(map(str, command))}` ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *command):
        """Starts a command in the background; it ends with the container at the latest."""
        return subprocess.Popen(
            self.enter(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True)

    def remove(self):
        if self.process and self.process.poll() is None:
            # Process 1, whose end ends all others; no shutdown is needed.
            if self.leader:
                os.kill(self.leader, signal.SIGKILL)
            else:
                self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        try:
            if self.group:
                self.group.remove()
        finally:
            shutil.rmtree(self.folder)
