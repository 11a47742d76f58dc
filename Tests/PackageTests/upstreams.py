"""Upstreams for the reader of the documents, over HTTP and HTTPS, as a service. Usage: upstreams.py CERTIFICATE KEY"""

import http.server
import os
import socket
import ssl
import sys
import threading

TOKENS = "".join(f"data: {event}\n\n" for event in ('{"token":"Hel"}', '{"token":"lo"}', "[DONE]"))
ANSWERS = {
    "/rates.json": ("application/json", '{"base":"EUR","rates":{"USD":1.0842}}'),
    "/quotes.json": ("application/json", '{"quotes":[{"symbol":"AAPL","price":181.5},{"symbol":"IBM","price":140}]}'),
    "/v1/chat/completions": ("text/event-stream", TOKENS),
}


class Upstream(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind, body = ANSWERS.get(self.path, (None, ""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET

    def log_message(self, *_):
        pass


plain, secure = [http.server.ThreadingHTTPServer(("127.0.0.1", port), Upstream) for port in (80, 443)]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:])
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
    manager.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
secure.serve_forever()
