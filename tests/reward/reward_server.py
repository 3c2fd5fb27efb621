"""A reward server with faults. Speaks vLLM's /generate, /classify, /score, /pooling and OpenAI's chat completions.

It writes its port as one line to file descriptor 0, a socket, and ends when that is closed. The response of a sample says
what happens to it: a number is its score; null, nan, text, none, two, html, huge, drip, sleep, closed and an HTTP status
are faults; "once-STATUS NUMBER" and "once-closed NUMBER" fail the first time only; "wait-N NUMBER" is answered when N
requests are in flight.
"""
import http.server
import json
import os
import re
import threading
import time

lock = threading.Condition()
stats = {"connections": 0, "requests": 0, "in_flight": 0, "max_in_flight": 0, "authorization": "", "bodies": []}
seen = set()


def response_of(body):
    """The judged response; a judge's prompt holds it in brackets."""
    if "text_2" in body:
        return body["text_2"]
    text = body.get("input") or body.get("prompt") or body["messages"][-1]["content"]
    bracketed = re.search(r"\[\[(.*?)\]\]", text, re.S)
    return bracketed.group(1) if bracketed else text


def reply(path, body, score):
    if path.endswith("/chat/completions"):
        return {"choices": [{"message": {"role": "assistant", "content": "It is fine.\nScore: %s" % score}}]}
    if path.endswith("/generate"):
        return {"text": [body["prompt"] + "Hm. Score: %s" % score]}
    row = {"/classify": {"probs": [score]}, "/pooling": {"data": [score]}, "/score": {"score": score}}
    return {"data": [row[path[path.rindex("/"):]]]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with lock:
            stats["connections"] += 1

    def log_message(self, *args):
        pass

    def send(self, status, data, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send(200, b"")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/stats":
            with lock:
                return self.send(200, json.dumps(stats).encode())
        with lock:
            stats["requests"] += 1
            stats["in_flight"] += 1
            stats["max_in_flight"] = max(stats["max_in_flight"], stats["in_flight"])
            stats["authorization"] = self.headers.get("Authorization", "")
            stats["bodies"].append(body)
            lock.notify_all()
        try:
            self.answer(body, response_of(body))
        except OSError:
            self.close_connection = True
        except ValueError:
            self.send(500, b"no number")
        finally:
            with lock:
                stats["in_flight"] -= 1

    def answer(self, body, text):
        length = re.match(r"/length(?:-(\d+))?/", self.path)
        if length:
            time.sleep(int(length.group(1) or 0) / 1000)
            text = str(len(text) % 7)
        kind, _, rest = text.partition(" ")
        first = (kind, rest) not in seen
        seen.add((kind, rest))
        if kind.startswith("once-"):
            kind = kind[5:] if first else rest
        if kind.startswith("wait-"):
            with lock:
                if not lock.wait_for(lambda: stats["max_in_flight"] >= int(kind[5:]), timeout=20):
                    return self.send(500, b"too few came")
            kind = rest
        if kind == "closed":
            self.close_connection = True
            return self.connection.close()
        if kind == "sleep":
            return time.sleep(30)
        if kind == "drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                self.wfile.write(b" ")
                time.sleep(0.02)
        if kind == "html":
            return self.send(200, b"<html><body>\nLog in</body></html>", "text/html")
        if kind == "huge":
            return self.send(200, b" " * (9 << 20))
        if re.fullmatch(r"[345]\d\d", kind):
            return self.send(int(kind), b"no luck")
        if kind == "none":
            return self.send(200, json.dumps({"data": [], "choices": [], "text": []}).encode())
        if kind == "two":
            answer = reply(self.path, body, 1.0)
            return self.send(200, json.dumps({"data": answer["data"] * 2}).encode())
        score = {"null": None, "nan": float("nan"), "text": "1.0"}.get(kind, kind)
        if isinstance(score, str) and kind != "text" and not self.path.endswith(("/generate", "/completions")):
            score = float(score)
        self.send(200, json.dumps(reply(self.path, body, score)).encode())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def main():
    server = Server(("127.0.0.1", 0), Handler)
    os.write(0, b"%d\n" % server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.read(0, 1)


main()
