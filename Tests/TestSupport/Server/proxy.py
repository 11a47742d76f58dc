"""A proxy for the tests: absolute requests and CONNECT, with basic authentication if it is made with a login."""
import base64
import http.client
import http.server
import select
import socket
import socketserver
import urllib.parse


class Refusing(socketserver.BaseRequestHandler):
    """SOCKS 5 that takes none of the ways to say who one is."""

    def handle(self):
        self.request.recv(64)
        self.request.sendall(b"\x05\xff")


def handler(login, seen):
    """A handler class; `seen` gets (method, target, Proxy-Authorization, names of headers) of each request."""
    wanted = login and "Basic " + base64.b64encode(login.encode()).decode()

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def is_welcome(self):
            given = self.headers.get("Proxy-Authorization")
            seen.append((self.command, self.path, given or "", sorted(name.lower() for name in self.headers)))
            if wanted and given != wanted:
                self.send_response(407)
                self.send_header("Proxy-Authenticate", 'Basic realm="test"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return False
            return True

        def do_GET(self):
            if not self.is_welcome():
                return
            url = urllib.parse.urlsplit(self.path)
            upstream = http.client.HTTPConnection(url.hostname, url.port or 80)
            headers = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
            upstream.request("GET", url.path + ("?" + url.query if url.query else ""), headers=headers)
            answer = upstream.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Via", "1.1 test")
            self.end_headers()
            self.wfile.write(body)

        def do_CONNECT(self):
            self.close_connection = True
            if not self.is_welcome():
                return
            host, port = self.path.rsplit(":", 1)
            with socket.create_connection((host, int(port))) as upstream:
                self.send_response(200)
                self.end_headers()
                ends = {self.connection: upstream, upstream: self.connection}
                while True:
                    for end in select.select(list(ends), [], [])[0]:
                        piece = end.recv(65536)
                        if not piece:
                            return
                        ends[end].sendall(piece)

    return Proxy
