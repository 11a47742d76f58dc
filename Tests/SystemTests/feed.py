"""An HTTP feed for the tests: a JSON document, but only for who shows the right token. Runs in the container's network.

Usage: feed.py PORT TOKEN
"""

import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        allowed = self.headers.get("Authorization") == f"Bearer {sys.argv[2]}"
        body = b'{"price":42}' if allowed else b"who are you?"
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "application/json" if allowed else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
