"""The module HTTP and h11 read the same bytes. Where they differ, the difference must be one of those listed here."""

import random
import re
import subprocess

import h11

SEED, GENERATED = 11, 6000

# Requests that one of the two refuses, by its sentence: what the bytes then contain, and why the other one does not.
STRICTER = {
    "a line ends with a line feed without": (
        rb"(?<!\r)\n",
        "h11 accepts a bare LF, which RFC 9112 permits and proxies read differently"),
    "folded lines are not supported": (rb"\n[ \t]", "h11 joins folded lines; RFC 9112 lets a server refuse them"),
    "a field value contains a control character": (
        rb"[\x01-\x08\x0e-\x1f\x7f]",
        "h11 refuses only NUL and whitespace among the control characters"),
    "the only transfer coding": (rb"", "h11 sends 501, and the module 400 as for every other fault"),
    "HTTP/1.0 has no transfer codings": (
        rb"HTTP/1\.0",
        "h11 ignores the version; RFC 9112 says that such a message is faulty"),
    "both a Content-Length and a Transfer-Encoding": (
        rb"(?is)content-length.*transfer-encoding|transfer-encoding.*content-length",
        "h11 lets Transfer-Encoding win; a proxy may not"),
    "several Content-Length fields": (rb"(?is)content-length.*content-length", "h11 accepts equal ones"),
    "several Transfer-Encoding fields": (
        rb"(?is)transfer-encoding.*transfer-encoding",
        "h11 sends 501, and the module 400 as for every other fault"),
    "Content-Length must consist of digits": (
        rb"(?i)content-length:[ \t]*(\d+)[ \t]*,[ \t]*\1",
        "h11 accepts a list of equal lengths"),
    "Content-Length is too large": (rb"\d{19}", "h11 has unlimited integers, up to 20 digits"),
    "the Host field is malformed": (rb"", "h11 does not read it"),
    "versions HTTP/1.1 and HTTP/1.0": (
        rb"HTTP/(?!1\.[01])\d\.\d",
        "h11 accepts every HTTP/1.x, and refuses others with 400"),
    "the request's target must be a path": (rb"", "h11 does not read the target"),
    "the request's target contains a byte that": (rb"", "h11 accepts a fragment"),
    "the request's target has a malformed host": (rb"", "h11 does not read the target"),
    "a percent sign": (rb"%(?![0-9A-Fa-f]{2})", "h11 does not decode the target"),
    "encoded control character": (rb"%[01]", "h11 does not decode the target"),
    "encoded slash": (rb"%2F", "h11 does not decode the target"),
    "is not valid UTF-8": (rb"%ff", "h11 does not decode the target"),
    'a segment "." or': (rb"(\.|%2e)(\.|%2e)?/", "h11 does not read the target"),
    "the request line exceeds": (rb"", "h11 has one limit for a head, which the caller chooses"),
    "more than 100 fields": (rb"", "h11 has one limit for a head, which the caller chooses"),
    "the request's head exceeds": (rb"", "h11 has one limit for a head, which the caller chooses"),
    "a chunk's size is malformed": (
        rb"[0-9a-fA-F][ \t]+\r?\n",
        "h11 accepts spaces after the size, which are not in the grammar"),
    "a chunk's size is too large": (rb"[0-9a-fA-F]{17}", "h11 accepts 20 digits"),
    "a chunk's extensions exceed": (rb";[^\r]{256}", "h11 has one limit for a line, which the caller chooses"),
    "a chunk's extension contains": (rb"[0-9a-fA-F];[^\r\n]*[\x00-\x08\x0b-\x1f\x7f]", "h11 refuses only line ends"),
    "a carriage return between chunks": (rb";[^\n]*\r(?!\n)", "h11 accepts a bare CR in an extension"),
    "a trailer contains": (
        rb"\n0[^\n]*\r\n[^\n]*([\x01-\x08\x0e-\x1f\x7f]|(?<!\r)\n)",
        "h11 accepts a bare LF, and most control characters"),
    "trailers exceed": (rb"\n0[^\n]*\r\n[^\n]{8190}", "h11 has one limit for all trailers, which the caller chooses"),
}
# h11 refuses an empty line before a request, which RFC 9112 says to ignore.
EMPTY_LINE = "no request line received"
# h11 refuses characters beyond ASCII in a target, which curl sends as its user has typed them.
REQUEST_LINE, BEYOND_ASCII = "illegal request line", rb"(?m)^\S+ [^ \r\n]*[\x80-\xff]"
# The same for h11's refusals, after the head.
MORE_LENIENT = {
    "continuation line at start": (rb"", "trailers are discarded, so that their syntax does not matter"),
    "illegal header line": (rb"", "trailers are discarded, so that their syntax does not matter"),
}

METHODS = [b"GET", b"GET", b"POST", b"HEAD", b"OPTIONS", b"get", b"M-SEARCH", b"G(T", b"", b"PRI"]
TARGETS = [
    b"/", b"/streams/a?from=1", b"*", b"http://a/b", b"http://a:x/", b"a:80", b"/%2e%2e/", b"/a/../b", b"/%00",
    b"/%2F", b"/%",
    b"/a%20b", b"/a b", b"/\xc3\xa4", b"", b"/" + b"a" * 9000, b"//", b"/#a", b"/%ff", b"http:///", b"/\x7f",
]
VERSIONS = [b"HTTP/1.1"] * 8 + [b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"HTTP/1", b"HTTP/11", b""]
ENDS = [b"\r\n"] * 40 + [b"\n", b"\r", b"\r\r\n", b"\n\r", b"", b"\x00\r\n", b" \r\n"]
HOSTS = [b"Host: a"] * 12 + [b"Host: a\r\nHost: a", b"", b"host:", b"Host: a b", b"Host: [::1]:80", b"Host : a", b"Host: a/b"]
FIELDS = [
    b"Accept: */*", b"X:", b"X: \t y \t", b"Connection: close", b"Connection: keep-alive",
    b"connection: Upgrade, CLOSE",
    b"Upgrade: websocket", b"Expect: 100-continue", b": x", b"X y: z", b"X : y", b" X: y", b"\tX: y", b"X",
    b"X\x00: y", b"X: \x00",
    b"X: \x01", b"X: \x7f", b"X: a\tb", b"X: \xc3\xa4", b"X\xc3: a", b"X: a\r\n b", b"X: a\r\n\tb", b"X: a\x0bb",
    b"(: a",
    b"X: " + b"a" * 17000, b"\r\n".join([b"X: y"] * 100), b"Transfer-Encoding: gzip",
]
LENGTHS = [
    b"%d", b"%d", b"%d", b"0%d", b"+%d", b"-%d", b"%d, %d", b"%d\r\nContent-Length: %d", b"", b"0x%d", b"%d ",
    b"9223372036854775808",
    b"18446744073709551616", b"99999999999999999999999", b"%d\r\nTransfer-Encoding: chunked", b"1_0", b"\xd9\xa1",
]
CODINGS = [b"chunked"] * 10 + [b"Chunked", b"gzip, chunked", b"chunked, chunked", b"xchunked", b"", b"chunked\r\nContent-Length: 3",
                               b"identity", b"chunked;a=b", b"chunked\r\nTransfer-Encoding: chunked", b"\x0bchunked"]
SIZES = [b"%x"] * 10 + [b"0%x", b"%X", b"+%x", b"0x%x", b" %x", b"%x ", b"%x;a=b", b'%x;a="b"', b"%x;" + b"a" * 300, b"%x\t", b"",
                        b"00000000000000000%x", b"%x;\xc3", b"%x;\x01", b"g", b"-%x", b"ffffffffffffffff",
                        b"fffffffffffffffffffff"]
TRAILERS = [b""] * 6 + [b"T: x\r\n", b"T\r\n", b"T : x\r\n", b": x\r\n", b"T: x\n", b"T: \x00\r\n", b" T: x\r\n", b"T: x\r\n y\r\n",
                        b"T: " + b"a" * 9000 + b"\r\n", b"T\xc3: x\r\n", b"T: \x01\r\n"]


def fill(random, form, number):
    count = form.count(b"%")
    return form % ((number,) * count) if count else form


def body_and_field(random):
    data = bytes(random.randrange(256) for _ in range(random.choice([0, 1, 3, 20])))
    kind = random.randrange(3)
    if kind == 0:
        return b"", None
    if kind == 1:
        return data, b"Content-Length: " + fill(random, random.choice(LENGTHS), len(data))
    chunks = b""
    for chunk in filter(None, (data[:1], data[1:])):
        chunks += fill(random, random.choice(SIZES), len(chunk)) + random.choice(ENDS) + chunk + random.choice(ENDS)
    return chunks + b"0\r\n" + random.choice(TRAILERS) + b"\r\n", b"Transfer-Encoding: " + random.choice(CODINGS)


def one_request(random):
    # Most parts are valid, so that a fault is not hidden by another one.
    def pick(values, odds=4):
        return random.choice(values) if random.randrange(odds) == 0 else values[0]

    body, framing = body_and_field(random)
    line = pick([b" "] * 9 + [b"  ", b"\t", b""], 2).join((pick(METHODS), pick(TARGETS), pick(VERSIONS, 2)))
    lines = [line, pick(HOSTS)] + ([framing] if framing is not None else [])
    lines += [random.choice(FIELDS) for _ in range(random.choice([0, 0, 1, 2]))]
    return b"".join(line + random.choice(ENDS) for line in lines if line) + random.choice(ENDS) + body


def mutated(random, data):
    data = bytearray(data)
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        place = random.randrange(len(data) + 1)
        what = random.randrange(3)
        if what == 0:
            data[place:place + 1] = bytes([random.randrange(256)])
        elif what == 1:
            del data[place:place + random.randrange(4)]
        else:
            data[place:place] = random.choice([b"\r\n", b"\n", b"\r", b"\x00", b" ", b":", b"\t", b"0", b"%", b"\xff"])
    return bytes(data)


def generated():
    source = random.Random(SEED)
    for _ in range(GENERATED):
        request = b"".join(one_request(source) for _ in range(source.choice([1, 1, 1, 2, 3])))
        yield mutated(source, source.choice([b""] * 18 + [b"\r\n", b"\r\n" * 5]) + request)


def by_hand():
    """Each value of each list in an otherwise valid request."""
    for method in METHODS:
        yield method + b" / HTTP/1.1\r\nHost: a\r\n\r\n"
    for target in TARGETS:
        yield b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    for version in VERSIONS:
        yield b"GET / " + version + b"\r\nHost: a\r\n\r\n"
    for end in ENDS:
        for lines in ((end, b"\r\n", b"\r\n"), (b"\r\n", end, b"\r\n"), (b"\r\n", b"\r\n", end)):
            yield b"GET / HTTP/1.1" + lines[0] + b"Host: a" + lines[1] + lines[2]
    for host in HOSTS:
        for version in (b"1.0", b"1.1"):
            yield b"GET / HTTP/" + version + b"\r\n" + host + (b"\r\n" if host else b"") + b"\r\n"
    for field in FIELDS:
        yield b"GET / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n"
    for form in LENGTHS:
        yield b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + fill(None, form, 3) + b"\r\n\r\nabc"
    for coding in CODINGS:
        for version in (b"1.0", b"1.1"):
            yield (b"POST / HTTP/" + version + b"\r\nHost: a\r\nTransfer-Encoding: " + coding + b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    start = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    for form in SIZES:
        yield start + fill(None, form, 3) + b"\r\nabc\r\n0\r\n\r\n"
    for end in ENDS:
        yield start + b"3" + end + b"abc\r\n0\r\n\r\n"
        yield start + b"3\r\nabc" + end + b"0\r\n\r\n"
        yield start + b"3\r\nabc\r\n0" + end + b"\r\n"
        yield start + b"3\r\nabc\r\n0\r\n" + end
    for trailer in TRAILERS:
        yield start + b"0\r\n" + trailer + b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"


def normalized(fields):
    """h11 changes names, and the value of Transfer-Encoding, to small letters."""
    fields = [(name.lower(), value.strip(b" \t")) for name, value in fields]
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in fields]


def of_h11(data):
    """What h11 reads: requests as (method, target, fields, body, whether it is complete), and its refusal or None."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    requests = []
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                requests.append([event.method, event.target, normalized(event.headers), b"", False])
            elif isinstance(event, h11.Data):
                requests[-1][3] += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                requests[-1][4] = True
                # 404 also denies CONNECT and Upgrade.
                connection.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.states[h11.CLIENT] is h11.MUST_CLOSE or connection.states[h11.SERVER] is h11.MUST_CLOSE:
                    return requests, None
                connection.start_next_cycle()
            else:
                return requests, None
    except h11.RemoteProtocolError as error:
        return requests, (error.error_status_hint, str(error))


def of_ours(line):
    requests, words = [], line.split(" ")
    while words and words[0] in ("head", "part", "body"):
        kind, value = words.pop(0), bytes.fromhex(words.pop(0))
        if kind == "head":
            head = value.lstrip(b"\r\n").split(b"\r\n\r\n")[0].split(b"\r\n")
            method, target, _ = head[0].split(b" ")
            fields = (field.partition(b":") for field in head[1:])
            requests.append([method, target, normalized((name, value) for name, _, value in fields), b"", False])
        else:
            requests[-1][3:] = [value, kind == "body"]
    return requests, (int(words[1]), " ".join(words[2:])) if words and words[0] == "rejected" else None


def listed(table, refusal, data):
    return refusal and any(part in refusal[1] and re.search(form, data) for part, (form, _) in table.items())


def precede(some, others):
    """Whether the requests read before a refusal are the first ones of the others; the last may lack a part of its body."""
    if len(some) > len(others) or some[:-1] != others[:len(some)][:-1]:
        return False
    return not some or some[-1][:3] == others[len(some) - 1][:3] and others[len(some) - 1][3].startswith(some[-1][3])


def unexplained(data, ours, theirs):
    """None, or how the two differ in a way that is not listed."""
    (our_requests, our_refusal), (their_requests, their_refusal) = ours, theirs
    in_trailers = their_requests and not their_requests[-1][4]
    if listed(STRICTER, our_refusal, data) or in_trailers and listed(MORE_LENIENT, their_refusal, data) or (
            their_refusal and their_refusal[1] == EMPTY_LINE) or (
            their_refusal and their_refusal[1].startswith(REQUEST_LINE) and re.search(BEYOND_ASCII, data)):
        same = precede(our_requests, their_requests) or precede(their_requests, our_requests)
        return None if same else "what precedes the refusal differs"
    if bool(our_refusal) != bool(their_refusal):
        return "one refuses"
    if our_refusal and our_refusal[0] != their_refusal[0]:
        return "the status differs"
    if our_requests != their_requests:
        return "the requests differ"
    return None


def completed(data):
    """h11 checks a head once it is complete, but its first byte before; the module checks each line once that is."""
    return data + (b"" if data.endswith(b"\r\n\r\n") else b"\r\n" if data.endswith(b"\r\n") else b"\r\n\r\n")


def read(reader, inputs):
    lines = subprocess.run(
        [reader], input="".join(data.hex() + "\n" for data in inputs), capture_output=True, text=True, check=True
    ).stdout
    return [(data, of_ours(line), of_h11(data)) for data, line in zip(inputs, lines.split("\n"))]


def compare(reader):
    """Compares all inputs. Returns the number of inputs and what is unexplained, as text."""
    inputs = [*by_hand(), *generated()]
    results = read(reader, inputs)
    explained = [(ours, theirs) for data, ours, theirs in results if not unexplained(data, ours, theirs)]
    failures, used = [], set()
    for data, ours, theirs in read(reader, [completed(data) for data, *both in results if unexplained(data, *both)]):
        if difference := unexplained(data, ours, theirs):
            failures.append(f"{difference}\n  bytes: {data!r}\n  ours:  {ours}\n  h11:   {theirs}")
    for ours, theirs in explained:
        for table, refusal in ((STRICTER, ours[1]), (MORE_LENIENT, theirs[1])):
            if ours != theirs and refusal:
                used.update(part for part in table if part in refusal[1])
    # A line of the tables that nothing needs would hide a later difference.
    failures += [f"no input shows this difference: {part}" for part in {**STRICTER, **MORE_LENIENT} if part not in used]
    return len(inputs), failures
