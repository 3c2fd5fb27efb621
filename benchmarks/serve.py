#!/usr/bin/env python3
"""Load on a served model: 1, 8, 64 and 256 clients that chat in a closed loop; tokens/s and latencies, beside other
servers with an OpenAI API on the same model and machine, one after the other.

    benchmarks/serve.py --model FOLDER [--seconds 60] [--clients 1,8,64,256] [--peers transformers,llama]

transformers: `transformers serve` of the peers' environment (tools/references/setup_peers.sh); llama: the server of
llama-cpp-python (--llama-python, --llama-gguf: of the same precision). Standard library only.
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
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = json.dumps(body).encode()
        self.writer.write(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d"
                          b"\r\n\r\n%s" % (path.encode(), len(data), data))
        await self.writer.drain()
        status = int((await self.reader.readline()).split()[1])
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
        return status, content

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def load(port, model, clients, seconds, tokens):
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
                status, content = await client.post("/v1/chat/completions", body, count)
            except (OSError, asyncio.IncompleteReadError, ValueError, IndexError, KeyError) as error:
                errors.append(repr(error))
                client.close()
                await asyncio.sleep(0.1)
                continue
            if status == 429:
                refused += 1
                await asyncio.sleep(1)
            elif status != 200:
                errors.append(f"{status} {content[:200]}")
                await asyncio.sleep(0.1)
            else:
                latencies.append(time.monotonic() - start)
                firsts.append(first if first is not None else latencies[-1])
        client.close()

    tasks = [asyncio.create_task(run(i)) for i in range(clients)]
    await asyncio.wait(tasks, timeout=seconds + 240)
    for task in tasks:
        task.cancel()
    at = lambda values, share: sorted(values)[round(share * (len(values) - 1))] if values else None
    return {"tokens_per_s": total / seconds, "replies": len(latencies), "refused": refused, "errors": errors,
            "p50": at(latencies, 0.5), "p99": at(latencies, 0.99), "first": at(firsts, 0.5)}


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
    return [arguments.llama_python, "-m", "llama_cpp.server", "--model", arguments.llama_gguf, "--port", str(port),
            "--n_threads", str(arguments.threads), "--n_ctx", "2048"], "default"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of a reply")
    parser.add_argument("--clients", default="1,8,64,256")
    parser.add_argument("--peers", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--transformers-words", default="--continuous-batching")
    parser.add_argument("--llama-python", default=sys.executable)
    parser.add_argument("--llama-gguf", default="")
    arguments = parser.parse_args()
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(arguments.threads),
                                "HF_HUB_OFFLINE": "1"}
    print(f"{'server':<14}{'clients':>8}{'tokens/s':>10}{'replies':>9}{'first s':>9}{'p50 s':>8}{'p99 s':>8}{'429':>6}{'errors':>8}")
    for name in ["tandem", *filter(None, arguments.peers.split(","))]:
        port = free_port()
        command, model = command_of(name, arguments, port)
        with open(f"/tmp/serve_bench_{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            wait_for(port, process)
            asyncio.run(load(port, model, 1, 5, 4))  # warm
            for clients in map(int, arguments.clients.split(",")):
                got = asyncio.run(load(port, model, clients, arguments.seconds, arguments.tokens))
                shown = lambda value: "-" if value is None else f"{value:.2f}"
                print(f"{name:<14}{clients:>8}{got['tokens_per_s']:>10.1f}{got['replies']:>9}{shown(got['first']):>9}{shown(got['p50']):>8}"
                      f"{shown(got['p99']):>8}{got['refused']:>6}{len(got['errors']):>8}", flush=True)
                if got["errors"]:
                    print(f"  first error: {got['errors'][0]}")
        finally:
            process.terminate()
            process.wait()


main()
