#!/usr/bin/env python3
"""Load on a served model: 1, 8, 64 and 256 clients that chat in a closed loop; tokens/s and latencies, beside other
servers with an OpenAI API on the same model and machine, one after the other. Rows of a table, or with --json of JSON.

    benchmarks/serve.py --model FOLDER [--seconds 60] [--clients 1,8,64,256] [--servers tandem,transformers,llama]

transformers: `transformers serve` of the peers' environment (tools/references/setup_peers.sh). llama: llama.cpp's own
server, by benchmarks/peers/llama_server.py in a Python that has the package xllamacpp (--llama-python), with --llama-gguf, a
file of the same precision (benchmarks/peers/gguf_to_f32.py makes one). Standard library only.

A request that gets 429 is sent again after its Retry-After. Latencies are of the replies begun within the time and
ended at most --grace seconds after it; `unfinished` counts the others.
"""
import argparse
import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUESTIONS = ["Name three rivers of Europe.", "Write a sentence about the sea.", "What is a prime number?",
             "Explain rain to a child.", "Give me a short poem on winter.", "How do bees make honey?",
             "What does a compiler do?", "Describe the taste of a lemon."]


class Client:
    """One kept-alive connection."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def post(self, path, body, on_part):
        """`on_part` gets each chunk of a streamed reply as it comes."""
        kept = self.writer is not None
        if not kept:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = json.dumps(body).encode()
        self.writer.write(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d"
                          b"\r\n\r\n%s" % (path.encode(), len(data), data))
        await self.writer.drain()
        line = await self.reader.readline()
        if kept and not line:  # the server had closed it meanwhile, as it may
            self.close()
            return await self.post(path, body, on_part)
        status = int(line.split()[1])
        headers = {}
        while (line := await self.reader.readline()) != b"\r\n":
            name, value = line.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            content = b""
            while size := int(await self.reader.readline(), 16):
                content += (part := await self.reader.readexactly(size))
                on_part(part)
                await self.reader.readline()
            await self.reader.readline()
        else:
            content = await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, content, int(headers.get("retry-after", 1))

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def load(port, model, clients, seconds, tokens, grace=60):
    """Tokens that came within the time; latencies of the replies that were begun in it, and failures."""
    began = time.monotonic()
    latencies, firsts, total, refused, errors = [], [], 0, 0, []

    async def run(number):
        nonlocal total, refused
        client, turn = Client(port), number
        while time.monotonic() - began < seconds:
            body = {"model": model, "messages": [{"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]}],
                    "max_tokens": tokens, "temperature": 0.7, "stream": True}
            turn += 1
            start, first = time.monotonic(), None

            def count(part):
                nonlocal total, first
                pieces = part.count(b'"content"') - part.count(b'"content":""') - part.count(b'"content": ""')
                if pieces > 0 and first is None:
                    first = time.monotonic() - start
                if time.monotonic() - began <= seconds:
                    total += max(pieces, 0)

            try:
                status, content, pause = await client.post("/v1/chat/completions", body, count)
            except (OSError, asyncio.IncompleteReadError, ValueError, IndexError, KeyError) as error:
                errors.append(repr(error))
                client.close()
                await asyncio.sleep(0.1)
                continue
            if status == 429:
                refused += 1
                await asyncio.sleep(min(pause, max(0, began + seconds - time.monotonic())))
            elif status != 200:
                errors.append(f"{status} {content[:200]}")
                await asyncio.sleep(0.1)
            else:
                latencies.append(time.monotonic() - start)
                firsts.append(first if first is not None else latencies[-1])
        client.close()

    tasks = [asyncio.create_task(run(i)) for i in range(clients)]
    _, unfinished = await asyncio.wait(tasks, timeout=seconds + grace)
    for task in unfinished:
        task.cancel()
    at = lambda values, share: sorted(values)[round(share * (len(values) - 1))] if values else None
    return {"clients": clients, "tokens_per_s": total / seconds, "replies": len(latencies), "unfinished": len(unfinished),
            "first_p50_s": at(firsts, 0.5), "first_p99_s": at(firsts, 0.99), "p50_s": at(latencies, 0.5),
            "p99_s": at(latencies, 0.99), "refused": refused, "errors": errors}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process, seconds=180):
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("the server did not start")


def command_of(name, arguments, port):
    """Its command, and the model's name in requests."""
    model = str(pathlib.Path(arguments.model).resolve())
    if name == "tandem":
        return [str(ROOT / arguments.build / "bin/tandem"), "serve", model, "--port", str(port), "--threads",
                str(arguments.threads)], model
    if name == "transformers":
        return [str(ROOT / "tools/references/peer_python"), "-m", "transformers.cli.transformers", "serve", "--port",
                str(port), "--device", "cpu", "--dtype", "float32", *arguments.transformers_words.split()], model
    return [arguments.llama_python, str(ROOT / "benchmarks/peers/llama_server.py"), arguments.llama_gguf, str(port),
            str(arguments.threads), str(arguments.llama_slots)], "default"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of a reply")
    parser.add_argument("--clients", default="1,8,64,256")
    parser.add_argument("--servers", default="tandem")
    parser.add_argument("--grace", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--transformers-words", default="--continuous-batching")
    parser.add_argument("--llama-slots", type=int, default=64, help="replies that llama.cpp computes at once")
    parser.add_argument("--llama-python", default=sys.executable)
    parser.add_argument("--llama-gguf", default="")
    arguments = parser.parse_args()
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(arguments.threads),
                                "HF_HUB_OFFLINE": "1"}
    columns = ("tokens_per_s", "replies", "unfinished", "first_p50_s", "first_p99_s", "p50_s", "p99_s", "refused")
    if not arguments.json:
        print(f"{'server':<14}{'clients':>8}", *(f"{name:>13}" for name in columns), f"{'errors':>8}")
    for name in arguments.servers.split(","):
        port = free_port()
        command, model = command_of(name, arguments, port)
        with open(f"/tmp/serve_bench_{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            wait_for(port, process)
            warm_up(port, model)
            for clients in map(int, arguments.clients.split(",")):
                got = asyncio.run(load(port, model, clients, arguments.seconds, arguments.tokens, arguments.grace))
                show(name, got, columns, arguments.json)
        finally:
            process.terminate()
            process.wait()


def warm_up(port, model):
    """A server may listen before its model is there."""
    for _ in range(60):
        if asyncio.run(load(port, model, 1, 2, 4))["replies"] > 0:
            return
        time.sleep(1)
    sys.exit("the server does not answer")


def show(name, got, columns, as_json):
    if as_json:
        errors = {"errors": len(got["errors"])} | ({"first_error": got["errors"][0]} if got["errors"] else {})
        return print(json.dumps({"server": name} | got | errors), flush=True)
    shown = lambda value: "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    print(f"{name:<14}{got['clients']:>8}", *(f"{shown(got[column]):>13}" for column in columns), f"{len(got['errors']):>8}", flush=True)
    if got["errors"]:
        print(f"  first error: {got['errors'][0]}")


main()
