"""An HTTP feed for the tests, in the container's network: a JSON document, only with the right token; and under
/lines/ endless numbers, one per line, from 0 for each connection.

Usage: feed.py PORT TOKEN

Prints the path of each request for numbers, one per line.
"""

import http.server
import os
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/lines/"):
            return self.count()
        allowed = self.headers.get("Authorization") == f"Bearer {sys.argv[2]}"
        body = b'{"price":42}' if allowed else b"who are you?"
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "application/json" if allowed else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def count(self):
        os.write(1, f"{self.path}\n".encode())  # in one write, because other threads write, too
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        number = 0
        try:
            while True:
                self.wfile.write(b"".join(b"%d\n" % value for value in range(number, number + 2)))
                number += 2
                time.sleep(0.01)
        except OSError:
            pass

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
