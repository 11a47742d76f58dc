"""A language model, as an upstream of requests: answers a POST word by word, as server-sent events, and counts.

/model/KEY?words=5&pause=0.01&hold=3: an answer of so many words, with a pause before each, that waits behind the third one until
/release/KEY; with hold=0 before the head. Each word names the request's body, and its number. `status=429` answers with an error that repeats the credentials, and
`cut=2` breaks off behind the second word. A body that is JSON without `"stream": true` gets the whole answer as JSON.
/modelled/KEY tells the requests by body, how many answers were complete, and how many were left by their reader.
"""
import collections
import json
import threading
import time

lock = threading.Lock()
told = {}


def of(key):
    with lock:
        return told.setdefault(key, {"requests": collections.Counter(), "types": [], "complete": 0, "left": 0})


def chunk(number, text, reason=None):
    return {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock",
        "choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": reason}], "number": number,
    }


def answer(handler, key, query, released):
    account = of(key)
    body = handler.body.decode()
    with lock:
        account["requests"][body] += 1
        account["types"].append(handler.headers.get("Content-Type", "-"))
    if "status" in query:
        said = {"error": {"message": f"no\n{handler.headers.get('Authorization')} {query.get('apikey')}", "type": "mock"}}
        return handler.answer(int(query["status"]), json.dumps(said).encode(), Content_Type="application/json")
    count = int(query.get("words", "5"))
    asked = json.loads(body) if body.startswith("{") else {"stream": True}
    text = asked.get("text") or asked.get("messages", [{}])[-1].get("content") or body
    if not asked.get("stream", False):
        whole = chunk(0, None) | {"object": "chat.completion"}
        whole["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]
        return handler.answer(200, json.dumps(whole).encode(), Content_Type="application/json")
    if query.get("hold") == "0":
        released.wait()
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.flush()

    def say(event):
        data = f"data: {event}\n\n".encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.flush()

    try:
        for number in range(1, count + 1):
            time.sleep(float(query.get("pause", "0")))
            say(json.dumps(chunk(number, f"{text}-{number} ")))
            if number == int(query.get("cut", "0")):
                handler.close_connection = True
                return None
            if number == int(query.get("hold", "0")):
                released.wait()
        say(json.dumps(chunk(count, None, "stop")))
        say("[DONE]")
        handler.wfile.write(b"0\r\n\r\n")
        handler.wfile.flush()
        with lock:
            account["complete"] += 1
    except OSError:
        with lock:
            account["left"] += 1
        handler.close_connection = True


def tell(handler, key):
    account = of(key)
    with lock:
        handler.answer(200, json.dumps(account).encode())
