"""A served model in its own process, and plain HTTP to it. Standard library only."""
import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

from driver import PROGRAM, expect


class Server:
    def __init__(self, *words, env=None):
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2", **(env or {}))
        self.log = open("server.log", "a+", encoding="utf-8")
        self.process = subprocess.Popen([PROGRAM, "serve", *words, "--port", "0"], stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=environment)
        atexit.register(self.process.kill)  # a test that fails leaves nothing behind
        line = self.process.stdout.readline()
        found = re.search(r"http://(.*):(\d+)$", line.strip())
        expect(found, "the server says where it listens", line)
        self.host, self.port = found.group(1), int(found.group(2))

    def request(self, method, path, body=None, headers=None, timeout=60):
        """status, headers, body: JSON where it is JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        text = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        if reply.headers.get("Content-Type", "").startswith("application/json"):
            data = json.loads(data)
        return reply.status, reply.headers, data

    def post(self, path, body, status=200, **more):
        got, headers, reply = self.request("POST", path, body, **more)
        expect(got == status, f"{path}: status {got}, expected {status}", str(reply)[:500])
        return reply

    def stream(self, path, body):
        """The events of a streamed reply."""
        got, headers, reply = self.request("POST", path, body)
        expect(got == 200 and headers["Content-Type"] == "text/event-stream", f"{path}: a stream", str(reply))
        events = [event.removeprefix("data: ") for event in reply.decode().split("\n\n") if event]
        expect(events[-1] == "[DONE]", f"{path}: the stream's end", str(events[-3:]))
        return [json.loads(event) for event in events[:-1]]

    def metric(self, name):
        for line in self.request("GET", "/metrics")[2].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return None

    def eventually(self, what, holds, seconds=20):
        until = time.monotonic() + seconds
        while not holds():
            expect(time.monotonic() < until, what)
            time.sleep(0.02)

    def raw(self, data, wait=True, timeout=10):
        """Sends bytes as they are; what comes back until the other side closes."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
            try:
                connection.sendall(data)
                if not wait:
                    return b""
                connection.shutdown(socket.SHUT_WR)
                parts = []
                while part := connection.recv(65536):
                    parts.append(part)
                return b"".join(parts)
            except OSError:
                return b""

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024

    def end(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        expect(self.process.returncode == code, f"the server ends with {self.process.returncode}, expected {code}",
               open("server.log", encoding="utf-8").read()[-2000:])
