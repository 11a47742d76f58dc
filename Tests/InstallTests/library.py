"""The manuals of the C library, compared with its header and its examples."""

import pathlib
import re
import tempfile

from documents import expect_accepted
from installation import PROJECT, expect, expect_equal, said

LIBRARY = PROJECT / "Sources" / "libstreamd"
HEADER = (LIBRARY / "streamd.h").read_text()


def pages():
    """The source of each page, by its name."""
    return {path.stem: path.read_text() for path in sorted((LIBRARY / "man").glob("*.3"))}


def library_pages_are_valid(_):
    """man and groff accept the manuals of the C library without a warning"""
    for path in sorted((LIBRARY / "man").glob("*.3")):
        expect_accepted(path)


def functions_have_their_page(_):
    """each function of the C library has a page by its name, with the declaration of the header"""
    declarations = re.findall(r"^(?:static inline )?(\w[\w ]*?\*?) ?\b(sdm_\w+)(\(.*?\))(?:;| \{)", HEADER, re.M)
    declared = {name + parameters: kind for kind, name, parameters in declarations}
    names = {name for _, name, _ in declarations}
    exported = set(re.findall(r"^ +(sdm_\w+);", (LIBRARY / "streamd.map").read_text(), re.M))
    expect(exported and exported <= names, f"the header lacks {exported - names}")
    found = {}
    for text in pages().values():
        synopsis = text[text.index(".Sh SYNOPSIS"):text.index(".Sh DESCRIPTION")]
        for kind, name, parameters in re.findall(r'^\.Ft "?(.*?)"?\n\.Fn (\w+) (.*)$', synopsis, re.M):
            found[name + "(" + ", ".join(re.findall('"(.*?)"', parameters)) + ")"] = kind
    expect_equal(set(found.items()), set(declared.items()), "declarations")
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
        complaint = said("make", "-s", "-C", LIBRARY, "install-manuals", "PREFIX=/usr", f"DESTDIR={folder}")
        expect(not complaint, f"make says: {complaint}")
        manuals = pathlib.Path(folder, "usr/share/man/man3")
        for name in names:
            page = manuals / f"{name}.3"
            expect(page.is_file() and f".Nm {name}" in page.read_text(), f"{name} has no page")
        complaint = said("make", "-s", "-C", LIBRARY, "uninstall", "PREFIX=/usr", f"DESTDIR={folder}")
        expect(not complaint and not any(manuals.iterdir()), f"uninstall leaves {sorted(manuals.iterdir())}; {complaint}")


def errors_are_in_their_page(_):
    """the errors in the header and in streamd(3) are the same, and other pages have no others"""
    wanted = set(re.findall(r"-(E[A-Z]+)\b", HEADER))
    expect(len(wanted) > 10, f"the header has {wanted}")
    listed = {name: set(re.findall(r"\bE[A-Z]{2,}\b", " ".join(re.findall(r"^\.It Bq Er (.*)$", text, re.M))))
              for name, text in pages().items()}
    expect_equal(listed["streamd"], wanted, "streamd.3")
    for name, errors in listed.items():
        expect(errors and errors <= wanted, f"{name}.3 has {errors}")


def constants_are_in_their_page(_):
    """the constants and the members of the header's structures are in a page"""
    wanted = set(re.findall(r"\b(SDM_[A-Z_]+)\b", re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)))
    text = "".join(pages().values())
    expect(len(wanted) > 15, f"the header has {wanted}")
    missing = wanted - set(re.findall(r"\bSDM_[A-Z_]+\b", text))
    expect(not missing, f"no page has {missing}")
    terms = {word for line in re.findall(r"^\.It Fa (.*)$", text, re.M) for word in line.split(" , ")}
    members = {name for body in re.findall(r"^typedef struct \w+ \{\n(.*?)^\}", HEADER, re.M | re.S)
               for name in re.findall(r"^  [^ ].*?\b(\w+)(?:\[\d+\])?;", body, re.M) if not name.startswith("reserved")}
    expect_equal(terms, members, "members")


def programs_are_the_examples(_):
    """the programs in the manuals are the examples, which the tests of the C library compile and run"""
    printed = [code.replace("\\e", "\\") for text in pages().values()
               for code in re.findall(r"^\.Bd -literal\n(.*?)^\.Ed", text, re.M | re.S)]
    examples = [path.read_text() for path in (LIBRARY / "examples").glob("*.c")]
    expect(sorted(printed) == sorted(examples), "a page has another program, or an example is in no page")


CHECKS = [
    library_pages_are_valid,
    functions_have_their_page,
    errors_are_in_their_page,
    constants_are_in_their_page,
    programs_are_the_examples,
]
