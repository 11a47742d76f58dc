"""An upstream for the tests: answers well and badly. Prints where it serves as one line of JSON, ends with its stdin.

A path's first part says how to answer, the second is a key of the test's own: /count/KEY answers with how many requests
that key has had. /seen/KEY tells the number without counting. /head/KEY tells the headers of the key's last request.
"""
import collections
import gzip
import http.server
import json
import os
import socket
import socketserver
import ssl
import sys
import tempfile
import threading
import time
import urllib.parse
import zlib

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Upstreams"))

import certificates
import limits
import model
import positions
import proxy
import scripted
import tokens
import unions
import websocket

lock = threading.Lock()
counts = collections.Counter()
heads = {}
proxied = []
spoken = collections.defaultdict(list)
released = collections.defaultdict(threading.Event)


def client_of(connection):
    """The name in the client's certificate, if it has shown one."""
    certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    return dict(part[0] for part in certificate["subject"])["commonName"] if certificate else ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a head and its body in one packet, not the second after the first's acknowledgement

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        kind, key = parts[0], (parts + [""])[1]
        query = dict(urllib.parse.parse_qsl(url.query))
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or "0"))
        with lock:
            if kind not in ("seen", "head", "release", "proxied", "spoken", "asked", "told", "granted", "listened",
                            "modelled", "unioned"):
                counts[key] += 1
                peers = heads.get(key, {}).get("peers", "").split()
                heads[key] = {name.lower(): value for name, value in self.headers.items()}
                heads[key]["path"] = self.path
                heads[key]["client"] = client_of(self.connection)
                heads[key]["sni"] = getattr(self.connection, "asked_name", None) or "-"
                heads[key]["peers"] = " ".join([*peers, str(self.client_address[1]) if self.client_address else "-"])
            number = counts[key]
        getattr(self, "answer_" + kind)(key, number, query)

    do_POST = do_PUT = do_QUERY = do_GET

    def answer_asked(self, key, number, query):
        """The requests of /scripted/KEY."""
        with scripted.lock:
            self.answer(200, json.dumps(scripted.asked[key]).encode())

    def answer_scripted(self, key, number, query):
        scripted.answer(self, key, number, query)

    def answer_github(self, key, number, query):
        limits.github(self, key, number, query)

    def answer_listened(self, key, number, query):
        limits.tell(self, key, number, query)

    def answer_model(self, key, number, query):
        model.answer(self, key, query, released[key])

    def answer_modelled(self, key, number, query):
        model.tell(self, key)

    def answer_quotes(self, key, number, query):
        unions.quotes(self, key, number, query)

    def answer_exchange(self, key, number, query):
        unions.exchange(self, key, number, query)

    def answer_flow(self, key, number, query):
        unions.flow(self, key, number, query)

    def answer_unioned(self, key, number, query):
        unions.tell(self, key, number, query)

    def answer_token(self, key, number, query):
        tokens.token(self, key, number, query)

    def answer_guarded(self, key, number, query):
        tokens.guarded(self, key, number, query)

    def answer_granted(self, key, number, query):
        tokens.tell(self, key, number, query)

    def answer_told(self, key, number, query):
        positions.tell(self, key, number, query)

    def answer_telegram(self, key, number, query):
        positions.telegram(self, key, number, query)

    def answer_linked(self, key, number, query):
        positions.linked(self, key, number, query)

    def answer_headed(self, key, number, query):
        positions.headed(self, key, number, query)

    def answer_graphql(self, key, number, query):
        positions.graphql(self, key, number, query)

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status not in (204, 304) and "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def answer_seen(self, key, number, query):
        self.answer(200, str(number).encode())

    def answer_head(self, key, number, query):
        with lock:
            self.answer(200, json.dumps(heads.get(key, {})).encode())

    def answer_proxied(self, key, number, query):
        """What the proxies were asked for that has the key in it."""
        self.answer(200, json.dumps([request for request in proxied if key in request[1]]).encode())

    def answer_count(self, key, number, query):
        self.answer(200, b"%d\n" % number)

    def answer_status(self, key, number, query):
        """/status/KEY?code=503&times=2&retry=…: so often that, then the number."""
        if number <= int(query.get("times", "1")):
            retry = {"Retry_After": query["retry"]} if "retry" in query else {}
            self.answer(int(query["code"]), b"" if query["code"] == "204" else b"sorry", **retry)
        else:
            self.answer(200, b"%d\n" % number)

    def answer_once(self, key, number, query):
        """The number, the first time; then never anything new."""
        if number == 1:
            self.answer(200, b"1\n", ETag='"1"')
        else:
            self.answer(304, ETag='"1"')

    def answer_version(self, key, number, query):
        """A new version every third request, told by ETag, Last-Modified or both."""
        version = (number - 1) // 3
        tag, date = '"v%d"' % version, "Mon, 0%d Jan 2024 00:00:00 GMT" % (version + 1)
        headers = {"ETag": tag} if query["by"] == "tag" else {"Last_Modified": date}
        asked = self.headers.get("If-None-Match" if query["by"] == "tag" else "If-Modified-Since")
        if asked == (tag if query["by"] == "tag" else date):
            self.answer(304, **headers)
        else:
            self.answer(200, b"version %d after %d\n" % (version, number), **headers)

    def answer_thirds(self, key, number, query):
        """Another page every third request, with an ETag that is another each time."""
        self.answer(200, b"%d" % ((number - 1) // 3), ETag='"%d"' % number)

    def answer_longtag(self, key, number, query):
        self.answer(200, b"%d" % number, ETag='"%s"' % ("t" * 1023))

    def answer_refuseid(self, key, number, query):
        """/refuseid/KEY?code=412: an event with an id, but not for a client that sends one."""
        if "Last-Event-ID" in self.headers:
            self.answer(int(query["code"]), b"sorry")
        else:
            self.answer_stream(key, number, {"body": "id: a\ndata: %n\n\n"})

    def answer_size(self, key, number, query):
        body = b"x" * int(query["bytes"])
        if "chunked" in query:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for start in range(0, len(body), 1000):
                    piece = body[start : start + 1000]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True
        elif "gzip" in query:
            self.answer(200, gzip.compress(body), Content_Encoding="gzip")
        else:
            self.answer(200, body)

    def answer_coded(self, key, number, query):
        """/coded/KEY?text=…&coding=gzip&names=…&cut=1&tail=00&chunked=1: the text, encoded, without the last `cut` bytes and
        with `tail`, in hexadecimal, behind them. Each `|` in the text begins another gzip member."""
        text = query.get("text", "").encode()
        coding = query.get("coding", "gzip")
        if coding == "gzip":
            body = b"".join(gzip.compress(part) for part in text.split(b"|"))
        elif coding == "zlib":
            body = zlib.compress(text)
        elif coding == "raw":
            encoder = zlib.compressobj(wbits=-15)
            body = encoder.compress(text) + encoder.flush()
        else:
            body = text
        body = body[: len(body) - int(query.get("cut", "0"))] + bytes.fromhex(query.get("tail", ""))
        self.send_response(200)
        for name in query.get("names", "gzip" if coding == "gzip" else "deflate").split(";"):
            self.send_header("Content-Encoding", name)
        if "transfer" in query:
            self.send_header("Transfer-Encoding", query["transfer"] + ", chunked")
        elif "chunked" in query:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if "chunked" in query:
            for byte in body:
                self.wfile.write(b"1\r\n%c\r\n" % byte)
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body)

    def answer_raw(self, key, number, query):
        """/raw/KEY?head=…&body=…&code=200&version=1.1: these header lines, and this body, in hexadecimal."""
        body = bytes.fromhex(query.get("body", ""))
        lines = [line for line in bytes.fromhex(query.get("head", "")).split(b"\n") if line]
        lines += [b"Content-Length: %d" % len(body), b"", b""]
        status = "HTTP/%s %s X\r\n" % (query.get("version", "1.1"), query.get("code", "200"))
        self.wfile.write(status.encode() + b"\r\n".join(lines) + body)

    def answer_websocket(self, key, number, query):
        def said(found):
            with lock:
                spoken[key].append([number, found[0], found[1].hex()])

        def count():
            with lock:
                counts[key] += 1

        websocket.answer(self, number, query, said, count)

    def answer_spoken(self, key, number, query):
        """The frames that the clients of the key have sent: number of the connection, opcode, payload."""
        with lock:
            self.answer(200, json.dumps(spoken[key]).encode())

    def answer_stubborn(self, key, number, query):
        """/stubborn/KEY?code=500: a page with an ETag, but not for a client that has one. /seen/KEY counts."""
        if "If-None-Match" in self.headers:
            self.answer(int(query["code"]), b"sorry")
        else:
            self.answer(200, b"page", ETag='"1"')

    def answer_wall(self, key, number, query):
        """/wall/KEY?to=…: sets a cookie and redirects to itself, or to `to`; a client that has the cookie gets it."""
        if "wall=" + key in self.headers.get("Cookie", ""):
            self.answer(200, self.headers["Cookie"].encode())
        else:
            self.answer(302, Location=query.get("to", self.path), Set_Cookie="wall=%s; Path=/" % key)

    def answer_announce(self, key, number, query):
        """Says how much is coming; sends none of it."""
        self.answer(200, Content_Length=query["bytes"])
        self.rfile.read(1)

    def answer_cut(self, key, number, query):
        self.answer(200, b"only this", Content_Length="100")
        self.close_connection = True

    def answer_hang(self, key, number, query):
        self.rfile.read(1)

    def answer_hold(self, key, number, query):
        """The number, but not before /release/KEY."""
        with lock:
            event = released[key]
        event.wait()
        self.answer(200, b"%d\n" % number)

    def answer_release(self, key, number, query):
        with lock:
            released[key].set()
        self.answer(200)

    def answer_early(self, key, number, query):
        """An informational answer before the real one."""
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nETag: \"early\"\r\n\r\n")
        self.answer(200, b"late\n", ETag='"late"')

    def answer_headers(self, key, number, query):
        try:
            self.answer(200, **{"X_%d" % number: "y" * 80 for number in range(int(query["count"]))})
        except OSError:
            self.close_connection = True

    def answer_redirect(self, key, number, query):
        time.sleep(float(query.get("delay", "0")))
        body = b"y" * int(query.get("bytes", "0"))
        retry = {"Retry_After": query["retry"]} if "retry" in query else {}
        try:
            self.answer(int(query.get("code", "302")), body, Location=query["to"], **retry)
        except OSError:
            self.close_connection = True


    def answer_stream(self, key, number, query):
        """/stream/KEY?body=…&type=…&end=hang: the body, %n in it the request's number; then the end, or nothing more."""
        self.send_response(int(query.get("code", "200")))
        self.send_header("Content-Type", query.get("type", "text/event-stream"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        body = query.get("body", "").replace("%n", str(number)).encode()
        try:
            if body:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            self.wfile.flush()
            if query.get("end") == "hang":
                self.rfile.read(1)
            else:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        self.close_connection = True

    def answer_recover(self, key, number, query):
        """/recover/KEY?times=2: so many failures, then an event stream without an event."""
        if number <= int(query["times"]):
            self.answer(503, b"sorry")
        else:
            self.answer_stream(key, number, {"end": "hang"})

    def answer_flood(self, key, number, query):
        """Lines of 1,000 bytes until the client goes; /seen/KEY tells how many were written."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        try:
            while True:
                with lock:
                    line = counts[key]
                    counts[key] += 1
                self.wfile.write(b"%0999d\n" % line)
                self.wfile.flush()
        except OSError:
            self.close_connection = True

    def answer_dense(self, key, number, query):
        """Lines of one byte until the client goes."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        piece = b"1\n" * 65536
        try:
            while True:
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            self.close_connection = True

    def answer_numbers(self, key, number, query):
        """/numbers/KEY?pause=0.002: events 1, 2, … that begin behind Last-Event-ID, until the client goes."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        event = int(self.headers.get("Last-Event-ID") or "0")
        try:
            while True:
                event += 1
                self.wfile.write(b"id: %d\ndata: %d\n\n" % (event, event))
                self.wfile.flush()
                time.sleep(float(query["pause"]))
        except OSError:
            self.close_connection = True

    def answer_page(self, key, number, query):
        """/page/KEY?tag=1: the same page each time; with tag=1 told by an ETag."""
        if "tag" in query and self.headers.get("If-None-Match") == '"page"':
            self.answer(304, ETag='"page"')
        else:
            self.answer(200, b"page", **({"ETag": '"page"'} if "tag" in query else {}))

    def answer_mirror(self, key, number, query):
        """A redirect to a port that nobody serves, with all that was asked for."""
        self.answer(302, Location="http://127.0.0.1:1" + self.path)

    def answer_circle(self, key, number, query):
        self.answer(302, Location=self.path)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


class UnixServer(Server):
    address_family = socket.AF_UNIX

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0


folder = tempfile.TemporaryDirectory()
unix = os.path.join(folder.name, "s")
passphrase = "pass phrase"
files = certificates.make(folder.name, passphrase)


def secured(server, name, wants_client=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[name + ".pem"], files[name + ".key"])
    context.sni_callback = lambda connection, name, _: setattr(connection, "asked_name", name)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files["authority.pem"])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


address = ("127.0.0.1", 0)
servers = {
    "port": Server(address, Handler),
    "otherPort": Server(address, Handler),
    "securePort": secured(Server(address, Handler), "untrusted"),
    "trustedPort": secured(Server(address, Handler), "server"),
    "mutualPort": secured(Server(address, Handler), "server", wants_client=True),
    "proxyPort": Server(address, proxy.handler(None, proxied)),
    "refusingProxyPort": Server(address, proxy.Refusing),
    "lockedProxyPort": Server(address, proxy.handler("me:proxy pass", proxied)),
}
for server in [*servers.values(), UnixServer(unix, Handler)]:
    server.handle_error = lambda *arguments: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
places = {name: server.server_port for name, server in servers.items()}
print(json.dumps({**places, "unixSocket": unix, "files": files, "passphrase": passphrase}), flush=True)
sys.stdin.read()
folder.cleanup()
