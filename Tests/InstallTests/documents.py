"""The man pages and the message catalogue, compared with the programs and the source."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import blocks
from installation import PROJECT, expect, expect_equal, said

PAGES = [
    "man8/streamd.8", "man1/streamctl.1", "man5/streamd.toml.5", "man7/streamd-http.7", "man7/streamd-sources.7",
    "man7/streamd-fleet.7"]

# A key that no table has, and that is similar to none.
NO_KEY = "zzzzzzzzzzzz"

UNKNOWN = re.compile(r"unknown key; expected (none|one of: (?P<keys>.+))$")


def source(installation, page):
    return (installation.prefix / "share" / "man" / page).read_text()


def items(page, macro):
    """The first words of list items: `.It Fl -socket Ar path` has `-socket` for `Fl`."""
    return {name for line in re.findall(r"^\.It (.*)$", page, re.M) for name in re.findall(rf"\b{macro} (\S+)", line)}


def expect_accepted(page):
    for command in (["man", "-l", "--warnings", "-E", "UTF-8"], ["groff", "-mdoc", "-ww", "-Tutf8"]):
        complaint = said("sh", "-c", '"$@" 2>&1 >/dev/null', "sh", *command, page)
        expect(not complaint, f"{' '.join(command)} says of {page.name}: {complaint}")


def pages_are_valid(installation):
    """man and groff accept the manuals without a warning"""
    for page in PAGES:
        expect_accepted(installation.prefix / "share" / "man" / page)


def options_are_in_their_pages(installation):
    """the options in --help and in the manual of each program are the same"""
    for program, page in [("streamd", PAGES[0]), ("streamctl", PAGES[1])]:
        help_text = said(installation.program(program), "--help")
        wanted = set(re.findall(r"(?<![\w-])-(-[a-z][a-z-]*)", help_text))
        found = {name for name in items(source(installation, page), "Fl") if name.startswith("-")}
        expect_equal(found, wanted, page)


def commands_and_exit_codes_are_in_their_page(installation):
    """the commands and exit codes in --help and in the manual of streamctl are the same"""
    help_text = said(installation.program("streamctl"), "--help")
    page = source(installation, PAGES[1])
    commands = re.search(r"Commands:\n(.*?)\n\n", help_text, re.S)[1]
    listed = re.search(r"The commands are:(.*?)The options are:", page, re.S)[1]
    expect_equal(items(listed, "Cm"), set(re.findall(r"^ {2}(\w+)", commands, re.M)), "commands")
    codes = set(re.findall(r"\b(\d+)\b", help_text[help_text.index("Exit codes:"):]))
    status = page[page.index(".Sh EXIT STATUS"):page.index(".Sh EXAMPLES")]
    expect_equal(set(re.findall(r"^\.It (\d+)", status, re.M)), codes, "exit codes")


def keys_of(installation, path):
    """The keys of the table at `path`, from the error message of the configuration's reader; None if it is not a
    table. A table whose only key is a credential counts as none: it stands for a value."""
    head, depth = {"streams": ("[streams.s]\n", 2), "tokens": ("[[tokens]]\n", 1)}.get((path or [""])[0], ("", 0))
    dotted = ".".join(path[depth:] + [NO_KEY])
    file = installation.folder / "keys.toml"
    file.write_text(f"{head}{dotted} = 1\n")
    for line in said(installation.program("streamd"), "--check", "--config", file).splitlines():
        mistake = UNKNOWN.search(line)
        if mistake and f" {'.'.join(path + [NO_KEY])}: " in line:
            keys = set((mistake["keys"] or "").split(", ")) - {""}
            return None if keys in (set(), {"credential"}) else keys
    return None


def tree_of(installation, path):
    """All keys below the table at `path`, dotted."""
    names = set()
    for key in keys_of(installation, path) or ():
        below = tree_of(installation, path + [key])
        names |= {f"{key}.{name}" for name in below} or {key}
    return names


def keys_are_in_their_page(installation):
    """the keys that the daemon accepts and those in streamd.toml(5) are the same"""
    page = source(installation, PAGES[2])
    found, table = set(), ""
    for kind, name in re.findall(r"^\.(Ss|It Ic) (\S+)", page, re.M):
        if kind == "Ss":
            table = {"[streams.NAME]": ""}.get(name, name.strip("[]") + "." if name.startswith("[") else "")
        else:
            found.add(table + name)
    tables = keys_of(installation, [])
    wanted = {f"{table}.{key}" for table in tables - {"streams"} for key in tree_of(installation, [table])}
    wanted |= tree_of(installation, ["streams", "s"])
    expect(len(wanted) > 40, f"the reader tells of {len(wanted)} keys")
    # A key for a value or a table is in the page as itself, too.
    found -= {name for name in found if any(other.startswith(name + ".") for other in found)}
    expect_equal(found, wanted, PAGES[2])


def coding_keys(text):
    """The member names of the last `CodingKeys` in a piece of Swift."""
    cases = "".join(re.findall(r"^ *case (.*)$", text[text.rindex("enum CodingKeys"):].split("}")[0], re.M | re.S))
    return {quoted or name for name, quoted in re.findall(r"(\w+)(?: = \"(\w+)\")?", re.sub(r"\bcase\b", ",", cases))}


def terms(page, heading, macro):
    """The first word of each list item in one section or subsection."""
    part = re.search(rf"^\.S[sh] {re.escape(heading)}\n(.*?)^\.S[sh] ", page, re.M | re.S)
    expect(part, f"there is no section {heading}")
    return set(re.findall(rf"^\.It {macro} (\S+)", part[1], re.M))


def system_streams_are_in_their_page(installation):
    """the members of $streams, $stats, $history, $newest, $templates, $clients and $config and the states of streams are those in streamd(8) and WIRE.md"""
    protocol = PROJECT / "Sources" / "StreamProtocol"
    statistics = (protocol / "StatisticsSnapshot.swift").read_text()
    stream, upstream, whole = ("enum CodingKeys" + part for part in statistics.split("private enum CodingKeys")[1:])
    each, history = (protocol / "HistorySnapshot.swift").read_text().split("private enum CodingKeys")[1:]
    streams = PROJECT / "Sources" / "StreamServer" / "Streams"
    served = (streams / "ServedStream+Catalogue.swift").read_text()
    one, newest = (streams / "ServedStream+Newest.swift").read_text().split("enum CodingKeys")[1:]
    template = (streams.parent / "Templates" / "TemplatesSnapshot.swift").read_text().split("struct Template: Encodable {")[1].split("\n  }\n")[0]
    shared, entry = (protocol / "CatalogueEntry.swift").read_text().rsplit("private enum CodingKeys", 1)
    states = re.search(r"func state\(showsNames.*?\n  }\n", served, re.S)[0]
    wanted = {
        "$streams": coding_keys("enum CodingKeys" + entry) | {f"fleet.{key}" for key in coding_keys(shared)},
        "Stream states": set(re.findall(r'"([a-z]+)"', states)),
        "$stats": coding_keys(whole) | {f"by_stream.{key}" for key in coding_keys(stream)}
        | {f"by_stream.upstream.{key}" for key in coding_keys(upstream)},
        "$history": coding_keys("enum CodingKeys" + history)
        | {f"by_stream.{key}" for key in coding_keys("enum CodingKeys" + each)},
        "$newest": coding_keys("enum CodingKeys" + newest) | {f"by_stream.{key}" for key in coding_keys("enum CodingKeys" + one)},
        "$templates": {"templates"} | {f"templates.{key}" for key in re.findall(r"^    let (\w+):", template, re.M)},
        "$clients": {"clients", "others"}
        | {f"clients.{key}" for key in coding_keys((protocol / "ClientsSnapshot.swift").read_text())},
        "$config": coding_keys((protocol / "ConfigurationReport.swift").read_text()),
    }
    expect(min(map(len, wanted.values())) > 3, f"the source has {wanted}")
    page = source(installation, PAGES[0])
    wire = (PROJECT / "docs" / "WIRE.md").read_text().split("## System streams")[1]
    for heading, words in wanted.items():
        expect_equal(terms(page, heading, "Ic"), words, f"{PAGES[0]}, {heading}")
        plain = {word.rsplit(".", 1)[-1] for word in words}
        expect_equal(plain & set(re.findall(r"`(\w+)`", wire)), plain, f"WIRE.md, {heading}")


def columns_are_in_their_page(installation):
    """the columns of streamctl's tables and those in its manual are the same"""
    page = source(installation, PAGES[1])
    for heading, file in [
        ("streamctl list", "StreamListing"), ("streamctl list, templates", "TemplateListing"), ("streamctl clients", "ClientTable"),
        ("streamctl top", "TopTable"),
    ]:
        text = (PROJECT / "Sources" / "streamctl" / f"{file}.swift").read_text()
        columns = re.findall(r'"([^"]+)"', re.search(r"let header = \[(.*?)\]", text, re.S)[1])
        part = re.search(rf"^\.Ss {heading}\n(.*?)^\.S[sh] ", page, re.M | re.S)
        expect(part, f"there is no section {heading}")
        expect_equal(set(re.findall(r"^\.It Sy (.*)$", part[1], re.M)), set(columns), f"{PAGES[1]}, {heading}")


def clones_work(installation):
    """what the documents say to readers with a clone works as printed"""
    names = [name for name in blocks.documents() if any(block.only == "clone" for block in blocks.blocks(name))]
    expect(len(names) > 1, f"only {names} have blocks for a clone")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
            clone, steps = pathlib.Path(folder, "clone"), pathlib.Path(folder, "steps")
            (clone / ".build").mkdir(parents=True)
            steps.mkdir()
            (clone / ".build" / "debug").symlink_to(installation.program("streamd").parent)
            (clone / "Sources").symlink_to(PROJECT / "Sources")
            done = list(blocks.steps(name, "clone"))
            output = said("timeout", "300", "bash", "-c", f"steps={steps}\n" + blocks.script(done, steps), cwd=clone)
            expect(not (wrong := list(blocks.problems(done, output))), "\n".join(wrong))


def swift_is_compiled(installation):
    """the programs in Swift of all documents are accepted by the compiler"""
    programs = [block for name in blocks.documents() for block in blocks.blocks(name) if block.language == "swift" and not block.not_run]
    expect(len(programs) > 3, f"the documents have {len(programs)} programs in Swift")
    maps = [*PROJECT.glob("Sources/C/*/module.modulemap"), *PROJECT.glob("Sources/C/*/include/module.modulemap")]
    flags = [f"-fmodule-map-file={path}" for path in maps]
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
        for number, block in enumerate(programs):
            main = pathlib.Path(folder, str(number), "main.swift")
            main.parent.mkdir()
            main.write_text(block.text)
            answer = said(
                "swiftc", "-typecheck", "-swift-version", "6", "-I", installation.built / "Modules", "-module-cache-path",
                f"{folder}/cache", *(word for flag in flags for word in ("-Xcc", flag)), main)
            expect("error:" not in answer, f"{block.place}: {answer}")


def program_of_start_is_tested(installation):
    """the program in Swift of START.md is one of ExampleTests, which runs it"""
    swift = re.search(r"^```swift\n.*?\n\n(.*?)^```$", (PROJECT / "docs" / "START.md").read_text(), re.M | re.S)[1]
    code = re.sub("^", "    ", swift.replace("CommandLine.arguments[1]", "path"), flags=re.M).rstrip()
    tests = (PROJECT / "Tests" / "StreamClientTests" / "ExampleTests.swift").read_text()
    expect(re.sub(r"print\((.*)\)", r"printed.append(\1)", code) in tests, "ExampleTests has another program than START.md")


def libraries_can_be_used_by_version(installation):
    """a package can depend on each library by version, as SWIFT.md says"""
    form = r'\.package\(url: "[^"]+", from: "(?P<version>[^"]+)"\)'
    snippet = re.search(form, (PROJECT / "docs" / "SWIFT.md").read_text())
    expect(snippet, "SWIFT.md has no .package(url:)")
    version = snippet["version"]
    current = said(installation.program("streamctl"), "--version")
    expect(current.startswith(f"streamctl {version}"), f"SWIFT.md names version {version}, and this is {current}")
    names = re.findall(r'\.library\(name: "([A-Z]\w*)"', (PROJECT / "Package.swift").read_text())
    expect(len(names) > 3, f"Package.swift has the libraries {names}")
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
        origin, user = pathlib.Path(folder, "streamd"), pathlib.Path(folder, "user")
        shutil.copytree(PROJECT, origin, symlinks=True, ignore=shutil.ignore_patterns(".build", ".git"))
        git = ["git", "-C", origin, "-c", "user.name=test", "-c", "user.email=test@example.org"]
        for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=x"], ["tag", version]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        for target in ("user", "nothing"):
            (user / "Sources" / target).mkdir(parents=True)
            (user / "Sources" / target / f"{target}.swift").touch()
        products = ", ".join(f'.product(name: "{name}", package: "streamd")' for name in names)
        package = re.sub(r'url: "[^"]+"', f'url: "file://{origin}"', snippet[0])
        (user / "Package.swift").write_text(
            "// swift-tools-version: 6.2\nimport PackageDescription\n"
            f'let package = Package(name: "user", dependencies: [{package}], targets: [\n'
            f'  .target(name: "user", dependencies: [{products}]), .target(name: "nothing")])\n')
        # Plans the build of both targets.
        done = subprocess.run(
            ["swift", "build", "--configuration", "release", "--target", "nothing", "--package-path", user, "--cache-path",
             user / "cache", "--security-path", user / "security"], capture_output=True, text=True, check=False)
    expect(done.returncode == 0, f"SwiftPM says: {done.stdout}{done.stderr}")


def broker_configurations_are_valid(installation):
    """nats-server accepts the examples of brokers, and the one in streamd-fleet(7)"""
    server = shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin")
    expect(server, "there is no nats-server")
    examples = sorted((installation.prefix / "share/doc/streamd/examples/fleet").glob("*.conf"))
    expect(len(examples) == 3, f"there are {examples}")
    text = re.search(r"^(server_name: .*?)^\.Ed", source(installation, "man7/streamd-fleet.7"), re.M | re.S)[1]
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
        said("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=n1", "-keyout",
             f"{folder}/server.key", "-out", f"{folder}/server.pem")
        shutil.copy(f"{folder}/server.pem", f"{folder}/ca.pem")
        manual = pathlib.Path(folder, "manual.conf")
        # The key is known to the versions that the manual requires, and not to Debian 12's.
        expect(text.count("  sync_interval: always\n") == 1, "the manual has no sync_interval")
        manual.write_text(text.replace("  sync_interval: always\n", "").replace("/etc/nats/", f"{folder}/"))
        for path in [*examples, manual]:
            answer = said(server, "--config", path, "-t", environment={"ADMIN_PASSWORD": "x"})
            expect("is valid" in answer, answer)


def source_ids():
    text = "".join(path.read_text() for path in sorted((PROJECT / "Sources").rglob("*.swift")))
    halves = r"\b0x([0-9a-f_]{16,19})"
    return [(high + low).replace("_", "") for high, low in re.findall(rf"MessageID\(\s*{halves},\s*{halves}\)", text)]


def entries_of_the_catalogue(installation):
    text = (installation.prefix / "lib/systemd/catalog/streamd.catalog").read_text()
    form = re.compile(r"([0-9a-f]{32})\n((?:[\w-]+: [^\n]+\n)+)\n(.*)", re.S)
    return [form.match(entry) for entry in text.split("\n-- ")[1:]]


def catalogue_is_complete(installation):
    """the message ids in the source and in the catalogue are the same"""
    ids = source_ids()
    expect(len(ids) == len(set(ids)) and len(ids) > 10, f"the source has the ids {ids}")
    entries = entries_of_the_catalogue(installation)
    expect(all(entries), "an entry is not id, headers, empty line, text")
    found = [entry[1] for entry in entries]
    expect(len(found) == len(set(found)), "an id has two entries")
    expect_equal(set(found), set(ids), "catalogue")


def catalogue_describes_every_entry(installation):
    """every entry of the catalogue has a description, an action and an existing manual"""
    pages = {re.sub(r".*/(.*)\.(\d)$", r"man:\1(\2)", page) for page in PAGES}
    for entry in entries_of_the_catalogue(installation):
        headers = dict(line.split(": ", 1) for line in entry[2].splitlines())
        expect_equal(set(headers), {"Subject", "Defined-By", "Documentation"}, entry[1])
        expect(headers["Documentation"] in pages, f"{entry[1]} names {headers['Documentation']}")
        expect(len(entry[3].strip().split("\n\n")) >= 2, f"{entry[1]} has one paragraph")
        expect(all(len(line) <= 80 for line in entry[3].splitlines()), f"{entry[1]} has a long line")
        fields = set(re.findall(r"@(\w*)@", entry[0]))
        expect(fields <= {"STREAMD_STREAM", "STREAMD_CLIENT", "STREAMD_UID"}, f"{entry[1]} has {fields}")


def catalogue_is_accepted(installation):
    """journalctl accepts the catalogue without a message, and lists all of its entries"""
    complaint = said("journalctl", f"--root={installation.folder}", "--update-catalog")
    expect(not complaint, f"it says: {complaint}")
    listed = said("journalctl", f"--root={installation.folder}", "--list-catalog")
    expect_equal(set(re.findall(r"^([0-9a-f]{32}) streamd: ", listed, re.M)), set(source_ids()), "journalctl")


CHECKS = [
    pages_are_valid,
    options_are_in_their_pages,
    commands_and_exit_codes_are_in_their_page,
    keys_are_in_their_page,
    system_streams_are_in_their_page,
    columns_are_in_their_page,
    clones_work,
    swift_is_compiled,
    program_of_start_is_tested,
    libraries_can_be_used_by_version,
    broker_configurations_are_valid,
    catalogue_is_complete,
    catalogue_describes_every_entry,
    catalogue_is_accepted,
]
