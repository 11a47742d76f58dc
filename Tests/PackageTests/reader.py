"""A reader of the documents, who has the packages and does what each document says."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import blocks

# A reader may use sudo.
PREPARE = """
useradd --create-home --shell /bin/bash reader
echo 'reader ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/reader
update-ca-certificates >/dev/null 2>&1
"""
# No document takes ten seconds; a slow machine gets this, which is less than a command in the container gets.
DOCUMENT_SECONDS = 100
# For each document the daemon is as its package leaves it.
FRESH = """
loginctl disable-linger reader
systemctl stop "user@$(id -u reader).service"
systemctl stop streamd.service streamd.socket
rm -rf /etc/systemd/system/streamd.*.d /etc/streamd/streamd.d/* /etc/streamd/*.pem /var/lib/streamd/* ~reader
cp /usr/share/doc/streamd/streamd.toml /etc/streamd/streamd.toml
install -d -o reader -g reader ~reader
usermod --append --groups streamd reader
systemctl daemon-reload
systemctl reset-failed
systemctl --quiet enable streamd.socket streamd.service
systemctl start streamd.socket streamd.service
"""


@contextlib.contextmanager
def upstreams(container):
    """Servers for all upstreams that the documents name, which the container trusts."""
    text = "".join((blocks.PROJECT / name).read_text() for name in blocks.documents())
    names = sorted(set(re.findall(r"\b(?:https?|wss?)://([a-z0-9-]+(?:\.[a-z0-9-]+)+)\b", text)) - {"127.0.0.1"})
    with open(container.root / "etc/hosts", "a") as hosts:
        hosts.writelines(f"127.0.0.1 {name}\n" for name in [*names, container.run("uname", "--nodename").strip()])
    folder = container.root / "srv"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=upstreams", "-keyout", folder / "key.pem",
         "-out", folder / "certificate.pem", "-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)],
        check=True, capture_output=True)
    shutil.copy(folder / "certificate.pem", container.root / "usr/local/share/ca-certificates/upstreams.crt")
    shutil.copy(pathlib.Path(__file__).with_name("upstreams.py"), folder)
    container.run(
        "systemd-run", "--quiet", "--unit=upstreams", "--service-type=notify", "/usr/bin/python3", "/srv/upstreams.py",
        "/srv/certificate.pem", "/srv/key.pem")
    yield
    container.run("systemctl", "stop", "upstreams.service")


def read(container, packages, names):
    """Does what the documents say. Returns the number of blocks, and a sentence on each one that does not work as printed."""
    count, wrong = 0, []
    (container.root / "srv/packages").mkdir()
    for package in packages:
        shutil.copy(package, container.root / "srv/packages")
    with upstreams(container):
        container.run("sh", "-ec", PREPARE)
        for name in names:
            steps = list(blocks.steps(name, "package", installed=lambda program: False))
            if steps:
                count += len({step.place for step in steps})
                container.run("sh", "-ec", FRESH)
                wrong += do(container, name, steps)
        container.run("sh", "-ec", FRESH)
    return count, wrong


def do(container, name, steps):
    folder = container.root / "srv/steps"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "all.sh").write_text("steps=/srv/steps\ncd\n" + blocks.script(steps, folder))
    # An administrator reads the manuals of section 8.
    user = "root" if name.endswith(".8") else "reader"
    done = container.attempt("runuser", "--login", user, "--command", f"timeout {DOCUMENT_SECONDS} bash /srv/steps/all.sh")
    return list(blocks.problems(steps, done.stdout))
