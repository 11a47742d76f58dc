"""An upstream that acts on requests as a script says, and counts them.

/scripted/KEY?do=500,drop,200: the first request is answered by the first action, and so on; the last one is repeated.
A status is an answer with it, 503r with Retry-After. `drop` reads the request and closes the connection, `cut` breaks the answer off,
`open` begins server-sent events and breaks them off behind one, `line` ends them behind one. Any other action is the body of an
answer of 200, with %n for the number of the request. /asked/KEY tells each request: method, Content-Type, body and path.
"""
import collections
import threading

lock = threading.Lock()
asked = collections.defaultdict(list)


def answer(handler, key, number, query):
    with lock:
        asked[key].append([handler.command, handler.headers.get("Content-Type", "-"), handler.body.decode(), handler.path])
    script = query["do"].split(",")
    action = script[min(number, len(script)) - 1]
    event = b"data: %d\n\n" % number
    if action == "drop":
        handler.close_connection = True
    elif action == "cut":
        handler.answer(200, b"a part", Content_Length="100")
        handler.close_connection = True
    elif action == "open":
        handler.answer(200, event, Content_Type="text/event-stream", Content_Length="100")
        handler.close_connection = True
    elif action == "line":
        handler.answer(200, event, Content_Type="text/event-stream")
    elif action == "503r":
        handler.answer(503, b"later", Retry_After="0")
    elif action.isdigit() and len(action) == 3 and action != "200":
        handler.answer(int(action), b"sorry")
    else:
        handler.answer(200, (b"%d\n" % number if action == "200" else action.replace("%n", str(number)).encode()))
