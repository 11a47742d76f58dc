"""WebSockets that answer well and badly.

/websocket/KEY?send=HEX|texts=A|B&…: these bytes, or a text message for each part, follow the response with 101; then what the
client sends is read, pings and close frames are answered, and /spoken/KEY tells it. With service=NAME, one of `conversations`.
"""
import base64
import hashlib
import struct
import zlib

import conversations


def frame(opcode, payload, bits=0x80):
    length = len(payload)
    if length > 0xFFFF:
        size = b"\x7f" + struct.pack(">Q", length)
    else:
        size = bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length)
    return bytes([bits | opcode]) + size + payload


def messages(query, number):
    """The bytes that follow the response."""
    if "send" in query:
        return bytes.fromhex(query["send"])
    texts = [text.replace("%n", str(number)).encode() for text in query["texts"].split("|")] if "texts" in query else []
    texts += [b"x" * int(size) for size in query.get("sizes", "").split("|") if size]
    if "deflate" not in query:
        return b"".join(frame(1, text) for text in texts)
    encoder = zlib.compressobj(wbits=-15)
    ends = zlib.Z_FINISH if query["deflate"] == "final" else zlib.Z_SYNC_FLUSH
    sent = b""
    for text in texts:
        body = encoder.compress(text) + encoder.flush(ends)
        if ends == zlib.Z_FINISH:
            encoder, body = zlib.compressobj(wbits=-15), body + b"\0"
        else:
            body = body[:-4]
        sent += frame(1, body, 0xC0)
    return sent


def read_frame(file):
    """The next frame of the client: opcode and content; None at the end, or if it has no mask."""
    head = file.read(2)
    if len(head) < 2 or not head[1] & 0x80:
        return None
    length = head[1] & 0x7F
    if length > 125:
        length = int.from_bytes(file.read(2 if length == 126 else 8), "big")
    mask, payload = file.read(4), file.read(length)
    return head[0] & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


def converse(handler, number, query, said):
    def send(opcode, payload):
        handler.wfile.write(frame(opcode, payload))
        handler.wfile.flush()

    def receive():
        while found := read_frame(handler.rfile):
            said(found)
            if found[0] == 1:
                return found[1].decode()
        raise BrokenPipeError

    conversations.converse(query["service"], number, send, receive)


def answer(handler, number, query, said, count):
    """`said` is called with each frame of the client; `count` with the number of repetitions that were written."""
    key = handler.headers.get("Sec-WebSocket-Key", "")
    identifier = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1((key + identifier).encode()).digest()).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append("Sec-WebSocket-Accept: " + query.get("accept", accept))
    if "deflate" in query:
        lines.append("Sec-WebSocket-Extensions: permessage-deflate")
    lines += [line for line in query.get("head", "").split("|") if line]
    handler.close_connection = True
    try:
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" if "early" in query else b""
        sent = early + ("\r\n".join(lines) + "\r\n\r\n").encode() + messages(query, number)
        pieces = [sent[index : index + 1] for index in range(len(sent))] if "drip" in query else [sent]
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
        while "repeat" in query:
            handler.wfile.write(bytes.fromhex(query["repeat"]))
            handler.wfile.flush()
            count()
        if query.get("end") == "cut":
            return
        if "service" in query:
            converse(handler, number, query, said)
        while found := read_frame(handler.rfile):
            said(found)
            if found[0] == 9 and "mute" not in query:
                handler.wfile.write(frame(10, found[1]))
            if found[0] == 1 and "echo" in query:
                handler.wfile.write(frame(1, found[1]))
            handler.wfile.flush()
            if found[0] == 8:
                handler.wfile.write(frame(8, found[1]))
                handler.wfile.flush()
                return
    except OSError:
        pass
