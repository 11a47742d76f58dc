"""The completions, called as by a shell, compared with the programs' options."""

import os
import re
import subprocess
import time

from installation import SECONDS, expect, expect_equal, said

# The function of bash for Tab after these words.
BASH = r"""
source "$0"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"_$1"
printf '%s\n' "${COMPREPLY[@]}"
"""

# Tab at the end of the line $2 in zsh, whose completions are in the folder $1. Writes the offers to the file $3.
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f
zpty -w shell "PROMPT= fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -D -u; exec 3>${(q)3}"
zpty -w shell 'compadd() {
  local -a offers
  builtin compadd "$@"
  local code=$?
  [[ " $*" == *\ -[OAD]\ * ]] || { builtin compadd -A offers "$@"; print -rl -- $offers >&3 }
  return $code
}'
zpty -w shell "finish() { exit }; comppostfuncs=(finish); bindkey '^I' complete-word"
zpty -w -n shell "$2"$'\t'
while zpty -t shell; do sleep 0.02; zpty -r shell screen; done
"""


def bash(installation, *words, socket="/nowhere"):
    """The offers of bash for the last of `words`. An `=` or a `:` is a separate word."""
    file = installation.prefix / "share/bash-completion/completions" / words[0]
    answer = said("bash", "-c", BASH, file, *words, environment=environment(installation, socket))
    return set(answer.split())


def fish(installation, line, socket="/nowhere"):
    """The offers of fish at the end of `line`."""
    file = installation.prefix / "share/fish/vendor_completions.d" / f"{line.split()[0]}.fish"
    answer = said(
        "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", file, line,
        environment={**environment(installation, socket), "HOME": str(installation.folder)})
    return {offer.split("\t")[0] for offer in answer.splitlines()}


def zsh(installation, line, socket="/nowhere"):
    """The offers of zsh at the end of `line`."""
    folder = next((installation.prefix / "share/zsh").glob("*"))
    file = installation.folder / "offers"
    file.write_text("")
    said("zsh", "-f", "-c", ZSH, "zsh", folder, line, file, environment=environment(installation, socket))
    offers = set(file.read_text().split())
    file.unlink()
    return offers


def environment(installation, socket):
    path = f"{installation.prefix / 'bin'}:{os.environ['PATH']}"
    return {"PATH": path, "STREAMD_SOCKET": str(socket)}


def options_of(installation, program, heading=None):
    """The options that --help names, below one of its headings."""
    text = said(installation.program(program), "--help")
    if heading:
        text = re.search(rf"^{heading}:\n(.*?)\n\n", text, re.S | re.M)[1]
        return set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text, re.M))
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def commands_of(installation):
    text = said(installation.program("streamctl"), "--help")
    return set(re.findall(r"^ {2}(\w+)", re.search(r"Commands:\n(.*?)\n\n", text, re.S)[1], re.M))


def files_are_valid(installation):
    """bash, zsh and fish parse their completions without a message"""
    share = installation.prefix / "share"
    for shell, files in [
        ("bash", share.glob("bash-completion/completions/*")), ("zsh", share.glob("zsh/*/_*")),
        ("fish", share.glob("fish/vendor_completions.d/*")),
    ]:
        files = sorted(files)
        expect(len(files) == 2, f"{shell} has {files}")
        for file in files:
            complaint = said(shell, "-n", file)
            expect(not complaint, f"{shell} says: {complaint}")


def commands_are_offered(installation):
    """bash and fish offer each command and option of --help in its place, zsh contains them all"""
    commands = commands_of(installation)
    others = options_of(installation, "streamctl", "Other options")
    of_sub = options_of(installation, "streamctl", "Options of sub")
    of_both = options_of(installation, "streamctl", "Options of sub and get")
    of_sub |= options_of(installation, "streamctl", "Options of sub and pub")
    of_pub = options_of(installation, "streamctl", "Options of pub")
    of_pub |= options_of(installation, "streamctl", "Options of sub and pub")
    of_json = options_of(installation, "streamctl", "Options of list, status, config, clients, top and check")
    of_get = options_of(installation, "streamctl", "Options of get") | of_both
    of_list = options_of(installation, "streamctl", "Options of list") | of_json
    of_check = options_of(installation, "streamctl", "Options of check") | of_json
    of_reload = options_of(installation, "streamctl", "Options of reload")
    of_top = options_of(installation, "streamctl", "Options of top") | of_json
    daemon = options_of(installation, "streamd")
    expect_equal(bash(installation, "streamctl", ""), commands, "bash, streamctl")
    expect_equal(fish(installation, "streamctl "), commands, "fish, streamctl")
    of_all = others - {"--help", "--version"}
    for words, wanted in [
        (["streamctl", "--"], others), (["streamctl", "sub", "--"], of_sub | of_both | of_all),
        (["streamctl", "get", "--"], of_get | of_all), (["streamctl", "top", "--"], of_top | of_all),
        (["streamctl", "list", "--"], of_list | of_all), (["streamctl", "pub", "x", "--"], of_pub | of_all),
        (["streamctl", "config", "--"], of_json | of_all), (["streamctl", "clients", "--"], of_json | of_all),
        (["streamctl", "kick", "--"], of_all), (["streamctl", "forget", "--"], of_all), (["streamctl", "check", "--"], of_check | of_all),
        (["streamctl", "reload", "--"], of_reload | of_all),
        (["streamd", "--"], daemon),
    ]:
        expect_equal(bash(installation, *words), wanted, f"bash, {' '.join(words)}")
        offered = {offer for offer in fish(installation, " ".join(words)) if offer.startswith("--")}
        expect_equal(offered, wanted, f"fish, {' '.join(words)}")
    of_streamctl = others | of_sub | of_get | of_pub | of_list | of_top | of_check | commands
    for program, names in [("streamctl", of_streamctl), ("streamd", daemon)]:
        text = next((installation.prefix / "share/zsh").glob(f"*/_{program}")).read_text()
        missing = [name for name in names if not re.search(rf"(?<![\w-]){name}(?![\w-])", text)]
        expect(not missing, f"zsh does not know {missing}")


def commands_have_their_own_help(installation):
    """--help after a command has its options and no others', and names what may be meant by a word that it is not"""
    streamctl = installation.program("streamctl")
    socket = options_of(installation, "streamctl", "Other options")
    for command in commands_of(installation):
        text = said(streamctl, command, "--help")
        expect(text.startswith("Usage: streamctl ") and f" {command}" in text.splitlines()[0], f"{command}: {text}")
        expect(text == said(streamctl, "-h", command), f"-h {command} differs")
        offered = bash(installation, "streamctl", command, *(["x"] if command == "pub" else []), "--")
        named = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.M))
        expect_equal(named, offered | socket, f"--help of {command}")
    for words, meant in [
        (["lst"], "list"), (["sub", "x", "--formt", "raw"], "--format"), (["stauts", "--help"], "status"),
        (["--hlep"], "--help"),
    ]:
        done = subprocess.run([streamctl, *words], capture_output=True, text=True, timeout=SECONDS)
        expect(done.returncode == 64 and f'did you mean "{meant}"?' in done.stderr, f"{words}: {done.stderr}")
    done = subprocess.run(
        [installation.program("streamd"), "--chekc"], capture_output=True, text=True, timeout=SECONDS)
    expect(done.returncode == 64 and 'did you mean "--check"?' in done.stderr, done.stderr)


def values_are_offered(installation):
    """bash and fish offer the values in --help, after a space and after an equals sign"""
    for command, option, wanted in [
        ("sub", "--on-lag", {"skip", "latest", "fail"}), ("sub", "--format", {"data", "json", "raw"}),
        ("get", "--format", {"data", "json", "raw"}), ("top", "--sort", {"name", "rate", "lag", "state"}),
    ]:
        expect_equal(bash(installation, "streamctl", command, option, ""), wanted, f"bash, {option}")
        expect_equal(bash(installation, "streamctl", command, option, "="), wanted, f"bash, {option}=")
        one = sorted(wanted)[0]
        expect_equal(bash(installation, "streamctl", command, option, "=", one[:2]), {one}, f"bash, {option}=…")
        expect_equal(fish(installation, f"streamctl {command} {option} "), wanted, f"fish, {option}")
        help_text = said(installation.program("streamctl"), "--help")
        expect(all(re.search(rf"\b{value}\b", help_text) for value in wanted), f"--help has not all of {wanted}")


def addresses_are_one_word(installation):
    """bash offers commands and values after an address, which it splits at its colons"""
    commands = commands_of(installation)
    # No daemon of this machine listens there.
    for address in (["127.0.0.1", ":", "1"], ["[", "::", "1]", ":", "1"], ["unix", ":", "/nowhere"]):
        for option in (["--socket"], ["--socket", "="]):
            words = ["streamctl", *option, *address]
            expect_equal(bash(installation, *words, ""), commands, f"bash, {words}")
            expect_equal(bash(installation, *words, "sub", ""), set(), f"bash, {words} sub")
            expect_equal(bash(installation, *words, "sub", "--on-lag", "="), {"skip", "latest", "fail"}, f"bash, {words}")
    expect_equal(bash(installation, "streamctl", "get", "x", "-o", "=", "j"), {"json"}, "bash, -o=")
    expect_equal(bash(installation, "streamctl", "--socket", "unix", ":", "/bin/fals"), {"/bin/false"}, "bash, unix:")


def streams_are_offered(installation):
    """completed names are the daemon's streams, for pub those that accept values, with any --socket"""
    with installation.daemon() as socket:
        for words in (["sub"], ["get"], ["forget", "clock"], ["sub", "--count", "3"], ["sub", "--format", "=", "json"]):
            expect_offer(bash, {"clock", "home/door"}, installation, "streamctl", *words, "", socket=socket)
        expect_offer(bash, {"home/door"}, installation, "streamctl", "pub", "", socket=socket)
        expect_offer(bash, {"clock"}, installation, "streamctl", "sub", "cl", socket=socket)
        expect_offer(bash, set(), installation, "streamctl", "get", "clock", "", socket=socket)
        expect_offer(bash, {"clock", "home/door"}, installation, "streamctl", "--socket", socket, "sub", "")
        expect_offer(fish, {"clock", "home/door"}, installation, "streamctl sub ", socket=socket)
        expect_offer(fish, {"home/door"}, installation, "streamctl pub ", socket=socket)
        expect_offer(fish, {"home/door"}, installation, f"streamctl --socket {socket} get h")
        for words in ("sub", "sub clock", "get", "get -o json", "refresh", "forget clock", "check --max-age=5s"):
            expect_offer(zsh, {"clock", "home/door"}, installation, f"streamctl {words} ", socket=socket)
        expect_offer(zsh, {"clock", "home/door"}, installation, f"streamctl --socket {socket} get ")
        expect_offer(zsh, {"home/door"}, installation, "streamctl pub ", socket=socket)
        for words in ("get clock", "pub home/door", "check clock"):
            expect_offer(zsh, set(), installation, f"streamctl {words} ", socket=socket)


def expect_offer(shell, wanted, *question, **socket):
    """Retries while there is no offer: on a busy machine a daemon may take longer than a completion waits."""
    deadline = time.monotonic() + SECONDS
    found = shell(*question, **socket)
    while not found and wanted and time.monotonic() < deadline:
        found = shell(*question, **socket)
    expect_equal(found, wanted, f"{shell.__name__}, {question[1:]}")


def failure_is_silent(installation):
    """without a daemon no stream is offered and no message is printed"""
    expect_equal(bash(installation, "streamctl", "sub", ""), set(), "bash")
    expect_equal(fish(installation, "streamctl sub "), set(), "fish")


CHECKS = [
    files_are_valid,
    commands_are_offered,
    commands_have_their_own_help,
    values_are_offered,
    addresses_are_one_word,
    streams_are_offered,
    failure_is_silent,
]
