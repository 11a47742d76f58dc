"""The code blocks of the documents as a reader runs them: README.md, docs/*.md, the articles of the libraries, and the section
EXAMPLES of each manual.

A block of Markdown is fenced, or indented by four spaces. A comment in front of it says what its text does not:

    <!-- not run: REASON -->     why no reader can run it, or that no code is in it
    <!-- only: VARIANT -->       it is for readers with the package, or for those with a clone
    <!-- file: PATH -->          the text has the reader save it there
    <!-- needs: PROGRAM -->      it is run only where this program is installed
    <!-- given: COMMAND -->      what the text takes for granted, such as a file of the reader's own
    <!-- interrupt -->           the commands do not end by themselves: they are interrupted once they have printed something

A manual has the same words in a comment in front of .Bd. A block with prompts (`$ `) has commands, and what each prints. The
lines after `systemctl edit` are what the reader enters there.
"""

import dataclasses
import pathlib
import re
import shutil

PROJECT = pathlib.Path(__file__).resolve().parents[1]
DIRECTIVE = re.compile(r"(not run|only|file|needs|given|interrupt)(?:: (.*))?")

# What checks such blocks instead: Tests/InteroperabilityTests has a browser, nginx and promtool, Tests/InstallTests a compiler, Tests/node Node.
ELSEWHERE = {"html", "js", "nginx", "swift", "yaml"}
LANGUAGES = ELSEWHERE | {"c", "go", "java", "python", "rust", "sh", "toml"}


@dataclasses.dataclass
class Block:
    """One block, where it is, and what the comments in front of it say."""
    place: str
    language: str
    text: str
    not_run: str = ""
    only: str = ""
    file: str = ""
    needs: str = ""
    given: list = dataclasses.field(default_factory=list)
    interrupt: bool = False

    @property
    def has_prompts(self):
        return re.search(r"^[$#] \S", self.text, re.M) is not None and self.language == "sh"

    def commands(self):
        """Pairs of a command and the lines after it. Without prompts the whole block is one command, whose output is not known."""
        if not self.has_prompts:
            return [(self.text, None)]
        if not re.match(r"[$#] \S", self.text):
            return [("echo 'it has commands with a prompt and without'; false", None)]
        return re.findall(r"^[$#] ((?:.*\\\n)*.*)\n((?:(?![$#] ).*\n)*)", self.text, re.M)


def documents():
    """The names of all documents."""
    names = ["README.md", *(f"docs/{path.name}" for path in sorted((PROJECT / "docs").glob("*.md")))]
    names += [str(path.relative_to(PROJECT)) for path in sorted((PROJECT / "Sources").glob("*/*.docc/*.md"))]
    for folder in ("docs/man", "Sources/libstreamd/man"):
        names += [f"{folder}/{path.name}" for path in sorted((PROJECT / folder).glob("*.[1-8]"))]
    return names


def blocks(name):
    """The blocks of a document, in their order."""
    text = (PROJECT / name).read_text()
    return list(markdown_blocks(name, text) if name.endswith(".md") else manual_blocks(name, text))


def with_directives(block, comments):
    for comment in comments:
        word, value = DIRECTIVE.fullmatch(comment).groups()
        if word == "given":
            block.given.append(value)
        else:
            setattr(block, word.replace(" ", "_"), value or True)
    return block


def markdown_blocks(name, text):
    lines, comments, index, is_after_blank = text.splitlines(), [], 0, True
    while index < len(lines):
        line, begin = lines[index], index
        comment = re.fullmatch(r"<!-- (.*) -->", line)
        fence = re.fullmatch(r"```(\w*)", line)
        if comment and DIRECTIVE.fullmatch(comment[1]):
            comments.append(comment[1])
        elif fence:
            index = lines.index("```", index + 1)
            body = lines[begin + 1:index]
            yield with_directives(Block(f"{name}:{begin + 1}", fence[1] or "sh", "\n".join(body) + "\n"), comments)
            comments = []
        elif line.startswith("    ") and is_after_blank:
            while index + 1 < len(lines) and (lines[index + 1].startswith("    ") or not lines[index + 1]):
                index += 1
            body = "\n".join(each[4:] for each in lines[begin:index + 1]).rstrip() + "\n"
            language = "toml" if re.match(r"\[+[a-z]", body) else "sh"
            yield with_directives(Block(f"{name}:{begin + 1}", language, body), comments)
            comments = []
        elif line:
            comments = []
        is_after_blank = not lines[index] or (is_after_blank and bool(comments))
        index += 1


def manual_blocks(name, text):
    part = re.search(r"^\.Sh EXAMPLES\n(.*?)(?=^\.Sh |\Z)", text, re.M | re.S)
    if not part:
        return
    first = text[:part.start(1)].count("\n") + 1
    found = re.finditer(r'((?:^\.\\" [^\n]*\n)*)^\.Bd -literal[^\n]*\n(.*?)^\.Ed$', part[1], re.M | re.S)
    for match in found:
        comments = [line[4:] for line in match[1].splitlines() if DIRECTIVE.fullmatch(line[4:])]
        body = match[2].replace(r"\(dq", '"').replace(r"\e", "\\").replace(r"\&", "")
        language = "c" if "#include" in body else "toml" if body.startswith("[") else "sh"
        yield with_directives(Block(f"{name}:{first + part[1][:match.start(2)].count(chr(10))}", language, body), comments)


@dataclasses.dataclass
class Step:
    """One command of a reader, or one file that the reader saves."""
    place: str
    text: str
    wanted: str | None = None  # what it prints, as the document shows it
    interrupt: bool = False


# The streams that the examples of manuals name.
OF_MANUALS = """
[streams.quotes]
timer.every = "100ms"
jq = '{symbol: "AAPL", price: (100 + .tick)}'
start = "always"

[streams.build]
publish = true
write = ["*"]

[streams.log]
publish = true
write = ["*"]
"""


def steps(name, variant, installed=shutil.which):
    """What a reader of a document does, in order, as commands of one shell. `installed` says whether there is a program."""
    if not name.endswith(".md") and name != "docs/man/streamd.toml.5":
        yield from saved(Block(name, "toml", OF_MANUALS))
    for block in blocks(name):
        if block.not_run or block.only not in ("", variant) or (block.language in ELSEWHERE and not block.file):
            continue
        if block.needs and not installed(block.needs):
            continue
        yield from (Step(block.place, command) for command in block.given)
        if block.language not in LANGUAGES:
            yield Step(block.place, f"echo 'a block in {block.language}: what is that?'; false")
        elif block.file or block.language == "toml":
            yield from saved(block)
        elif block.language == "python":
            yield Step(block.place, heredoc("program.py", block.text) + "python3 program.py")
        elif block.language == "c":
            yield from compiled(block)
        else:
            for command, wanted in block.commands():
                if edited := re.fullmatch(r"(?:sudo )?systemctl edit (\S+)", command):
                    # It wants a terminal, and starts an editor.
                    command = heredoc("~/unit", wanted) + (
                        f'sudo env SYSTEMD_EDITOR="cp $HOME/unit" script -qec "systemctl edit {edited[1]}" /dev/null')
                    wanted = None
                yield Step(block.place, command, wanted, block.interrupt)


def saved(block):
    file = block.file or f"/etc/streamd/streamd.d/{re.sub('[^a-z0-9]+', '-', block.place.lower()).strip('-')}.toml"
    if not file.startswith("/etc/"):
        yield Step(block.place, heredoc(file, block.text))
        return
    yield Step(block.place, heredoc("~/saved", block.text) + f"sudo install -m 644 -D ~/saved {file}")
    if file.startswith("/etc/streamd/"):
        yield Step(block.place, "sudo systemctl reload streamd || { sudo journalctl -n 5 -o cat -u streamd; false; }")


def compiled(block):
    """A program of a manual: its first comment has its name, and the command that compiles it."""
    name, command = re.match(r"/\* (\w+) .*?\* +(cc .*?) \*/", block.text, re.S).groups()
    yield Step(block.place, heredoc(f"{name}.c", block.text) + command)


def heredoc(file, text):
    return f"cat >{file} <<'END OF FILE'\n{text}END OF FILE\n"


INTERRUPTED = """\
set -m; ( . {file} ) >output 2>&1 & set +m
for _ in {{1..300}}; do [[ -s output ]] && break; sleep 0.1; done
kill -- -$!; wait $! 2>/dev/null; cat output; [[ -s output ]]
"""


def script(steps, folder):
    """Writes the steps into a folder. Returns the text of a script that makes them there, and says how each has ended."""
    for number, step in enumerate(steps):
        (folder / f"{number}.sh").write_text(step.text + "\n")
    lines = []
    for number, step in enumerate(steps):
        run = INTERRUPTED.format(file=f'"$steps/{number}.sh"') if step.interrupt else f'. "$steps/{number}.sh"'
        lines.append(f"{run}\nprintf '\\n--- %s\\n' $?\n")
    return "exec 2>&1 </dev/null\n" + "".join(lines)


def masked(text):
    """Without what differs each time: ids, times, ages, and the width of columns."""
    text = re.sub(r'\d{4}-\d\d-\d\dT[\d:.]+Z', "TIME", text)
    text = re.sub(r"\b\d{16}\b", "ID", text)
    text = re.sub(r"\b\d+(\.\d+)?(ms|s|m|h)\b", "AGE", text)
    return "\n".join(re.sub(r" +", " ", line.rstrip()) for line in text.strip().splitlines())


def fits(found, wanted):
    """Whether the output is the one that is shown, in which a line `…` stands for any lines, and `…` in a line for any text."""
    form = re.escape(masked(wanted)).replace("…", "(?s:.*)")
    return re.fullmatch(form, masked(found)) is not None


def problems(steps, output):
    """What went wrong, a sentence each; a script that ended early leaves its last steps out."""
    results = re.findall(r"(.*?)\n--- (\d+)\n", output, re.S)
    for step, (found, status) in zip(steps, results):
        what = f"{step.place}: {step.text.strip().splitlines()[-1]}"
        if status != "0":
            yield f"{what} ended with {status}: {found.strip()}"
        elif step.wanted and not fits(found, step.wanted):
            yield f"{what} printed\n{found.strip()}\nand not\n{step.wanted.strip()}"
    if len(results) < len(steps):
        yield f"{steps[len(results)].place}: the shell ended: {output[-500:]}"
