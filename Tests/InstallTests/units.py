"""The units with their examples, the log level on a bus, and the files of install and uninstall."""

import contextlib
import ctypes
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import time
from xml.etree import ElementTree

from installation import SECONDS, expect, expect_equal, said

# A higher exposure needs a reason.
WORST_EXPOSURE = 1.4

BUS_NAME = "org.streamd"
LOG_CONTROL = [BUS_NAME, "/org/freedesktop/LogControl1", "org.freedesktop.LogControl1"]


@contextlib.contextmanager
def unit_folder(installation, manager):
    """The installed units, with paths of existing programs."""
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
        for unit in (installation.prefix / "lib/systemd" / manager).glob("streamd.*"):
            text = unit.read_text().replace("=/usr/bin/", f"={installation.prefix}/bin/")
            (pathlib.Path(folder) / unit.name).write_text(text)
        yield pathlib.Path(folder)


def verified(installation, folder, *options):
    """The messages of systemd-analyze about the units in a folder."""
    return said(
        "systemd-analyze", *options, "verify", "streamd.socket", "streamd.service",
        environment={
            "SYSTEMD_UNIT_PATH": f"{folder}:", "MANPATH": f"{installation.prefix}/share/man:",
            "XDG_RUNTIME_DIR": str(folder)})


def units_are_valid(installation):
    """systemd-analyze verify accepts the system and user units without a message"""
    for manager in ("system", "user"):
        with unit_folder(installation, manager) as folder:
            complaint = verified(installation, folder, f"--{manager}")
            expect(not complaint, f"it says: {complaint}")


def examples_are_valid(installation):
    """systemd-analyze verify accepts the example drop-ins, with and without their commented lines"""
    examples = sorted((installation.prefix / "share/doc/streamd/examples").glob("*.conf"))
    examples = [example for example in examples if example.name != "nginx.conf"]
    expect(len(examples) >= 2, f"there are {examples}")
    for example in examples:
        unit = re.search(r"/etc/systemd/system/(streamd\.\w+)\.d/", example.read_text())
        expect(unit, f"{example.name} does not say where it goes")
        for text in (example.read_text(), re.sub(r"^#(?=[A-Z]\w+=)", "", example.read_text(), flags=re.M)):
            with unit_folder(installation, "system") as folder:
                (folder / f"{unit[1]}.d").mkdir()
                (folder / f"{unit[1]}.d" / example.name).write_text(text)
                complaint = verified(installation, folder)
                expect(not complaint, f"it says of {example.name}: {complaint}")


def sandbox_is_tight(installation):
    """systemd-analyze security gives the service an exposure of at most 1.4"""
    unit = installation.prefix / "lib/systemd/system/streamd.service"
    report = said("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    exposure = re.search(r"Overall exposure level for streamd.service: ([0-9.]+)", report)
    expect(exposure and float(exposure[1]) <= WORST_EXPOSURE, f"it says: {report.strip().splitlines()[-1:]}")


def crashes_write_no_memory(installation):
    """both units forbid backtraces and core files"""
    for manager in ("system", "user"):
        settings = (installation.prefix / "lib/systemd" / manager / "streamd.service").read_text().splitlines()
        for setting in ("Environment=SWIFT_BACKTRACE=enable=no", "LimitCORE=0"):
            expect(setting in settings, f"the {manager}'s unit has no {setting}")


def disabling_the_service_leaves_the_socket(installation):
    """systemctl disable streamd.service leaves the socket enabled, for the system and for users"""
    for scope in ("--system", "--global"):
        def systemctl(*words):
            return said("systemctl", f"--root={installation.folder}", scope, *words)

        systemctl("enable", "streamd.socket", "streamd.service")
        systemctl("disable", "streamd.service")
        shown = [systemctl("is-enabled", f"streamd.{kind}").strip() for kind in ("service", "socket")]
        systemctl("disable", "streamd.socket")
        expect(shown == ["disabled", "enabled"], f"{scope}: service and socket are {shown}")


@contextlib.contextmanager
def bus(folder):
    """A private message bus in a folder; yields its address."""
    daemon = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address", f"--address=unix:path={folder}/bus"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield daemon.stdout.readline().strip()
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()


def log_level_survives_the_bus(installation):
    """the log level is on the bus when the daemon is ready, and again within 5 s after a restart of the bus"""
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder, contextlib.ExitStack() as stack:
        address = f"unix:path={folder}/bus"

        def level():
            return said("busctl", f"--address={address}", "get-property", *LOG_CONTROL, "LogLevel").strip()

        with bus(folder):
            stack.enter_context(
                installation.daemon(DBUS_SYSTEM_BUS_ADDRESS=address, DBUS_SESSION_BUS_ADDRESS=address))
            expect(level() == 's "info"', f"when it is ready, the bus says: {level()}")
        pathlib.Path(folder, "bus").unlink(missing_ok=True)
        with bus(folder):
            deadline = time.monotonic() + 5
            while (answer := level()) != 's "info"':
                expect(time.monotonic() < deadline, f"5 s after the restart, the bus says: {answer}")
                time.sleep(0.05)


def log_level_is_on_the_bus(installation):
    """the log level can be read and set over D-Bus, by syslog's names; an invalid one changes nothing"""
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder, bus(folder) as address:
        def ask(verb, name, *value):
            return said("busctl", f"--address={address}", verb, *LOG_CONTROL, name, *value).strip()

        with installation.daemon(DBUS_SYSTEM_BUS_ADDRESS=address, DBUS_SESSION_BUS_ADDRESS=address):
            expect(not ask("set-property", "LogLevel", "s", "debug"), "debug is refused")
            expect(ask("get-property", "LogLevel") == 's "debug"', "it was not set")
            expect(not ask("set-property", "LogLevel", "s", "4"), "4 is refused")
            expect(ask("get-property", "LogLevel") == 's "warning"', "it was not set by its number")
            expect("expected one of emerg, " in ask("set-property", "LogLevel", "s", "loud"), "loud is not refused")
            expect(ask("get-property", "LogLevel") == 's "warning"', "a wrong level changed something")
            expect(ask("get-property", "LogTarget") == 's "console"', "the target is wrong")
            expect(ask("get-property", "SyslogIdentifier") == 's "streamd"', "the identifier is wrong")


def policy_names_the_permitted_users(installation):
    """the D-Bus policy lets the user of the system unit, and root, own the name in the units"""
    policy = installation.prefix / "share/dbus-1/system.d/org.streamd.conf"
    root = ElementTree.parse(policy).getroot()
    owners = {rule.get("user") for rule in root if rule.find(f"allow[@own='{BUS_NAME}']") is not None}
    expect_equal(owners, {"root", "streamd"}, "owners")
    for unit in (installation.prefix / "lib/systemd").glob("*/streamd.service"):
        expect(f"\nBusName={BUS_NAME}\n" in unit.read_text(), f"{unit} has another BusName=")


def files_appear_in_one_step(installation):
    """the D-Bus policy is replaced in one step, complete and with its mode: D-Bus reads it at once"""
    folder = installation.prefix / "share/dbus-1/system.d"
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    expect(watch >= 0 and libc.inotify_add_watch(watch, bytes(folder), 0xFFF) >= 0, "no inotify")
    try:
        installation.deploy("install", "--built", installation.built)
        events, rest = [], os.read(watch, 1 << 16)
        while rest:
            _, mask, _, length = struct.unpack_from("iIII", rest)
            name = rest[16:16 + length].rstrip(b"\0").decode()
            if name == "org.streamd.conf":
                events.append(mask)
            rest = rest[16 + length:]
        expect(events == [0x80], f"the policy has the events {list(map(hex, events))}, not only IN_MOVED_TO")
    finally:
        os.close(watch)
    mode = (folder / "org.streamd.conf").stat().st_mode & 0o777
    expect(mode == 0o644, f"its mode is {mode:o}")
    left = [name for name in installation.files() if name.endswith(".new")]
    expect(not left, f"it leaves {left}")


def uninstall_removes_all_files(installation):
    """deploy/uninstall removes all files of deploy/install; must be the last check"""
    before = installation.files()
    expect(len(before) > 20, f"installed: {before}")
    installation.deploy("uninstall")
    left = {name for name in installation.files() if not name.startswith("var/lib/systemd/catalog/")} - {"keys.toml"}
    expect_equal(left, set(), "left")


CHECKS = [
    units_are_valid,
    examples_are_valid,
    sandbox_is_tight,
    crashes_write_no_memory,
    disabling_the_service_leaves_the_socket,
    log_level_is_on_the_bus,
    log_level_survives_the_bus,
    files_appear_in_one_step,
    policy_names_the_permitted_users,
    uninstall_removes_all_files,
]
