"""tandem serve on a tiny model, from outside: serve_cli.py PROGRAM [REQUESTS]. Standard library only; REQUESTS is how
many hostile requests are sent (500)."""
import array
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from driver import PROGRAM, expect, in_temporary_folder, refused, run
from serve_driver import Server
from tiny_model import TEMPLATE, read_safetensors, write_model, write_safetensors

HOSTILE = int(sys.argv[2]) if len(sys.argv) > 2 else 500
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def logprobs_of(ids, *more):
    """What tandem logprobs says of these ids."""
    with open("ids.jsonl", "w", encoding="utf-8") as out:
        out.write(json.dumps({"input_ids": ids}) + "\n")
    done = subprocess.run([PROGRAM, "logprobs", "model", "ids.jsonl", *more], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["logprobs"]


def chats(server):
    reply = server.post("/v1/chat/completions", {"model": "tiny", "messages": HI, "max_tokens": 12, "seed": 3, "n": 3})
    expect(reply["object"] == "chat.completion" and reply["model"] == "tiny" and reply["weights_version"] == 0,
           "a chat's head", str(reply))
    texts = [choice["message"]["content"] for choice in reply["choices"]]
    expect(len(set(texts)) == 3, "three samples differ", str(texts))
    expect(reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"],
           "usage adds up", str(reply["usage"]))
    again = server.post("/v1/chat/completions", {"messages": HI, "max_tokens": 12, "seed": 3, "n": 3})
    expect([c["message"]["content"] for c in again["choices"]] == texts, "a seed gives the same again")
    pieces = server.stream("/v1/chat/completions", {"messages": HI, "max_tokens": 12, "seed": 3, "n": 3, "stream": True,
                                                     "stream_options": {"include_usage": True}})
    streamed = ["", "", ""]
    for piece in pieces[:-1]:
        for choice in piece["choices"]:
            streamed[choice["index"]] += choice["delta"].get("content", "")
    expect(streamed == texts, "a stream gives the same text", str(streamed))
    expect(pieces[-1]["usage"] == reply["usage"] and not pieces[-1]["choices"], "usage at the end", str(pieces[-1]))
    greedy = server.post("/v1/chat/completions", {"messages": HI, "max_tokens": 20, "temperature": 0})
    text = greedy["choices"][0]["message"]["content"]
    stop = text[3:5]
    cut = server.post("/v1/chat/completions", {"messages": HI, "max_tokens": 20, "temperature": 0, "stop": stop})
    choice = cut["choices"][0]
    expect(choice["message"]["content"] == text[:text.index(stop)] and choice["finish_reason"] == "stop",
           "the reply ends before its stop text", str(cut))
    expect(greedy["choices"][0]["finish_reason"] == "length", "else at its length", str(greedy))
    # The same request of tandem generate: one engine, the same bits.
    with open("prompts.jsonl", "w", encoding="utf-8") as out:
        out.write(json.dumps({"messages": HI}) + "\n")
    lines = run("generate", "model", "prompts.jsonl", "--seed", "3", "--temperature", "1", "--max-tokens", "12", "-n", "3")
    offline = {row["sample"]: row for row in map(json.loads, lines.strip().splitlines())}
    expect([offline[i]["response"] for i in range(3)] == texts, "tandem generate gives the same texts", lines)


def exact(server):
    """Token ids in and out, with log-probs that tandem logprobs gives bit for bit."""
    ids = [257, 104, 105, 10]
    for temperature in (1.0, 0.7):
        reply = server.post("/v1/completions", {"prompt": ids, "max_tokens": 30, "seed": 5, "logprobs": 2, "n": 2,
                                                "temperature": temperature, "return_token_ids": True,
                                                "return_tokens_as_token_ids": True})
        for choice in reply["choices"]:
            expect(choice["prompt_token_ids"] == ids, "the prompt's ids", str(choice))
            wanted = logprobs_of(ids + choice["token_ids"], "--temperature", str(temperature))[len(ids) - 1:]
            given = [as_float32(value) for value in choice["logprobs"]["token_logprobs"]]
            expect(given == [as_float32(value) for value in wanted], "log-probs are those of tandem logprobs",
                   f"{given}\n{wanted}")
            expect(choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in choice["token_ids"]], "tokens by id")
            for i, top in enumerate(choice["logprobs"]["top_logprobs"]):
                expect(len(top) in (2, 3) and top[choice["logprobs"]["tokens"][i]] ==
                       choice["logprobs"]["token_logprobs"][i], "top log-probs, the drawn one too", str(top))
    chat = {"messages": HI, "max_tokens": 9, "seed": 1, "logprobs": True, "top_logprobs": 3, "return_token_ids": True}
    reply = server.post("/v1/chat/completions", chat)
    choice = reply["choices"][0]
    wanted = logprobs_of(reply["prompt_token_ids"] + choice["token_ids"])[len(reply["prompt_token_ids"]) - 1:]
    given = [as_float32(token["logprob"]) for token in choice["logprobs"]["content"]]
    expect(given == [as_float32(value) for value in wanted], "a chat's log-probs", f"{given}\n{wanted}")
    for token in choice["logprobs"]["content"]:
        likeliest = [top["logprob"] for top in token["top_logprobs"]]
        expect(len(likeliest) == 3 and likeliest == sorted(likeliest, reverse=True), "top log-probs descend", str(token))
    streamed, given = [], []
    for piece in server.stream("/v1/chat/completions", {**chat, "stream": True}):
        for part in piece["choices"]:
            streamed += part.get("token_ids", [])
            given += [token["logprob"] for token in (part["logprobs"] or {"content": []})["content"]]
    expect(streamed == choice["token_ids"], "a stream's token ids", str(streamed))
    expect(given == [token["logprob"] for token in choice["logprobs"]["content"]], "a stream's log-probs", str(given))


def others(server):
    texts = [c["text"] for c in server.post("/v1/completions", {"prompt": ["ab", "cd"], "n": 2, "max_tokens": 4, "seed": 1,
                                                                "echo": True})["choices"]]
    expect([text[:2] for text in texts] == ["ab", "ab", "cd", "cd"], "echo, and choices prompt by prompt", str(texts))
    pieces = server.stream("/v1/completions", {"prompt": ["ab", "cd"], "n": 2, "max_tokens": 4, "seed": 1, "echo": True,
                                               "stream": True})
    streamed = [""] * 4
    for piece in pieces:
        streamed[piece["choices"][0]["index"]] += piece["choices"][0]["text"]
    expect(streamed == texts, "a completion's stream", str(streamed))
    plain = server.post("/generate", {"prompt": "ab", "max_tokens": 4, "seed": 1})
    expect(plain == {"text": [texts[0]]}, "vLLM's plain /generate", str(plain))
    tokens = server.post("/tokenize", {"prompt": "hé"})
    expect(tokens["tokens"] == [104, 195, 169] and tokens["count"] == 3, "tokenize", str(tokens))
    expect(server.post("/detokenize", {"tokens": tokens["tokens"]}) == {"prompt": "hé"}, "detokenize")
    status, _, models = server.request("GET", "/v1/models")
    expect(models["data"][0]["id"] == "tiny" and models["data"][0]["max_model_len"] == 300, "models", str(models))
    status, headers, page = server.request("GET", "/")
    expect(status == 200 and b"<!doctype html>" in page and "Content-Security-Policy" in headers, "the chat page")
    expect(server.request("GET", "/health")[0] == 200, "health")
    expect(server.metric("tandem_generated_tokens_total") > 0, "metrics count")


def refusals(server):
    def error(path, body, status, *parts, **more):
        reply = server.post(path, body, status=status, **more)
        for part in parts:
            expect(part in reply["error"]["message"], f"{path} {body}: '{part}' is not named", str(reply))

    chat = "/v1/chat/completions"
    error(chat, {"messages": HI, "model": "other"}, 404, "other", "tiny")
    error(chat, {"messages": HI, "tempratur": 1}, 400, "tempratur")
    error(chat, {"messages": HI, "max_tokens": 1000}, 400, "max_tokens", "300")
    error(chat, {"messages": [{"role": "user", "content": "x" * 400}]}, 400, "300")
    error(chat, {"messages": HI, "tools": [TOOL]}, 400, "tools")
    error(chat, {"messages": HI, "response_format": {"type": "json_object"}}, 400, "grammar")
    error(chat, "{", 400, "JSON")
    error("/v1/embeddings", {"input": "x"}, 400, "writes text")
    error("/v1/weights", {"path": "model"}, 403, "--allow-weight-updates")
    error(chat, {"messages": HI}, 415, "Content-Type", headers={"Content-Type": "text/plain"})
    error("/nowhere", {}, 404)
    expect(server.request("GET", chat)[0] == 405, "another method")
    expect(server.post(chat, b"x" * (2 << 20), status=413)["error"]["code"] == 413, "a body that is too large")
    error("/v1/completions", {"prompt": "x", "max_tokens": 3, "min_tokens": 2, "stop_token_ids": list(range(64)) + [300]},
          400, "stop_token_ids")


def disconnects(server):
    body = json.dumps({"prompt": "x", "max_tokens": 250, "ignore_eos": True, "n": 400, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    before = server.metric("tandem_requests_cancelled_total")
    for stream in (body, body.replace(b'"stream": true', b'"stream": false')):
        connection = socket.create_connection((server.host, server.port))
        connection.sendall(head % len(stream) + stream)
        server.eventually("it runs", lambda: server.metric("tandem_sequences_running") > 0)
        connection.close()
        server.eventually("a client that goes frees its blocks", lambda: server.metric("tandem_sequences_running") == 0
                          and server.metric("tandem_kv_blocks") == server.metric("tandem_kv_blocks_free"))
    expect(server.metric("tandem_requests_cancelled_total") == before + 2, "both were cancelled, not finished")


def hostile(server, count):
    """Malformed, cut, huge and slow requests: the server lives, others are answered, memory stays."""
    source = random.Random(7)
    body = json.dumps({"prompt": "ab", "max_tokens": 3, "seed": 1}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    good = head + str(len(body)).encode() + b"\r\n\r\n" + body
    expected = server.post("/v1/completions", {"prompt": "ab", "max_tokens": 3, "seed": 1})["choices"][0]["text"]

    def flipped():
        data = bytearray(good)
        for _ in range(source.randint(1, 8)):
            data[source.randrange(len(data))] = source.randrange(256)
        return bytes(data)

    kinds = [
        lambda: good[: source.randrange(1, len(good))],  # cut
        flipped,
        lambda: source.randbytes(source.randint(1, 3000)),
        lambda: b"GET /" + b"a" * source.randint(1, 20000) + b" HTTP/1.1\r\n\r\n",
        lambda: b"GET / HTTP/1.1\r\nRange: bytes=" + b"0-1," * 2000 + b"\r\n\r\n",
        lambda: b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * source.randint(1, 20000) + b"\r\n",
        lambda: head + b"99999999999999999999\r\n\r\n" + body,
        lambda: head + b"-1\r\n\r\n" + body,
        lambda: head + b"1000000000\r\n\r\n" + b"x" * source.randint(1, 100000),
        lambda: head.replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n") + body,
        lambda: head + b"100\r\n\r\n" + b"[" * 100,
        lambda: head + b"%d\r\n\r\n" % 200000 + b'{"a":' * 40000,
        lambda: head.replace(b"application/json", b"multipart/form-data; boundary=x") + b"5\r\n\r\n--x--",
        lambda: head + b"5\r\nContent-Encoding: gzip\r\n\r\nabcde",
        lambda: good + good + good[:20],  # one after the other without waiting
        lambda: head + b"%d\r\n\r\n" % 30 + json.dumps({"prompt": [source.randint(-9, 999)] * 4}).encode()[:30],
    ]
    idle = [socket.create_connection((server.host, server.port)) for _ in range(20)]
    for connection in idle[:10]:
        connection.sendall(good[:30])  # slow: the rest does not come
    memory = None
    failures = []

    def send(numbers):
        for i in numbers:
            try:
                server.raw(kinds[i % len(kinds)](), wait=source.random() < 0.7)
            except OSError as error:
                failures.append(str(error))

    for round_ in range(4):
        threads = [threading.Thread(target=send, args=(range(k, count // 4, 8),)) for k in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            text = server.post("/v1/completions", {"prompt": "ab", "max_tokens": 3, "seed": 1})["choices"][0]["text"]
            expect(text == expected, "others are unharmed", text)
            time.sleep(0.05)
        expect(server.process.poll() is None, "the server lives", open("server.log", encoding="utf-8").read()[-2000:])
        if round_ == 0:
            memory = server.resident_mb()
    expect(not failures, "connections are taken", str(failures[:3]))
    grown = server.resident_mb() - memory
    expect(grown < 60, f"memory stays: {grown:.0f} MiB more after {count} requests")
    for connection in idle:
        connection.close()
    server.eventually("nothing is left", lambda: server.metric("tandem_sequences_running") == 0
                      and server.metric("tandem_connections") <= 2)


def limits():
    server = Server("model", "--max-queue", "4", "--max-num-seqs", "2", "--api-key", "secret", "--max-connections", "12")
    key = {"Authorization": "Bearer secret"}
    body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True}
    for headers in ({}, {"Authorization": "Bearer secreT"}, {"Authorization": "secret"}):
        expect(server.request("POST", "/v1/completions", body, headers)[0] == 401, f"{headers}: the key is asked for")
    for path in ("/health", "/metrics", "/"):
        expect(server.request("GET", path)[0] == 200, f"{path} is open")
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(server.request("POST", "/v1/completions", body, key)))
               for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = sorted(status for status, _, _ in replies)
    expect(set(statuses) == {200, 429} and statuses.count(200) >= 4, "too many at once get 429", str(statuses))
    expect(all(headers["Retry-After"] == "1" for status, headers, _ in replies if status == 429), "Retry-After")
    crowd = [socket.create_connection((server.host, server.port)) for _ in range(12)]
    server.eventually("too many connections get 429",
                      lambda: re.match(rb"HTTP/1.1 429 .*Retry-After", server.raw(b"GET /health HTTP/1.1\r\n\r\n"), re.DOTALL))
    for connection in crowd:
        connection.close()
    server.end()


def drains():
    server = Server("model", "--max-model-len", "500", "--drain-timeout", "30")
    reply = {}

    def ask():
        reply["whole"] = server.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 450, "ignore_eos": True,
                                                                    "n": 64})
    thread = threading.Thread(target=ask)
    thread.start()
    server.eventually("it runs", lambda: server.metric("tandem_sequences_running") > 0)
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    server.process.wait(timeout=60)
    status, _, body = reply["whole"]
    expect(status == 200 and body["usage"]["completion_tokens"] == 64 * 450, "what ran is answered", str(body)[:300])
    expect(server.process.returncode == 0, f"ends with 0, not {server.process.returncode}")
    server = Server("model", "--max-model-len", "500", "--drain-timeout", "1")
    head = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    body = json.dumps({"prompt": "x", "max_tokens": 450, "ignore_eos": True, "n": 900}).encode()
    client = socket.create_connection((server.host, server.port))
    client.sendall(head % len(body) + body)
    server.eventually("it runs", lambda: server.metric("tandem_sequences_running") > 0)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=60)
    expect(time.monotonic() - began < 15, "it does not wait longer than it was told")
    client.close()


def swaps():
    """New weights between requests: the version is in every reply, and the bits are the new model's."""
    write_model("other", seed=6)
    server = Server("model", "--served-model-name", "tiny", "--allow-weight-updates")
    ask = {"prompt": [104, 105], "max_tokens": 10, "temperature": 0, "return_token_ids": True, "logprobs": 0}
    old = server.post("/v1/completions", ask)
    expect(server.post("/v1/weights", {"path": "nowhere"}, status=400), "a folder that is not there")
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(server.post("/v1/completions", ask))) for _ in range(8)]
    for thread in threads[:4]:
        thread.start()
    expect(server.post("/v1/weights", {"path": "other"})["weights_version"] == 1, "a version more")
    for thread in threads[4:]:
        thread.start()
    for thread in threads:
        thread.join()
    new = server.post("/v1/completions", ask)
    expect(new["weights_version"] == 1 and new["choices"] != old["choices"], "the new weights answer", str(new))
    for reply in replies:
        wanted = old if reply["weights_version"] == 0 else new
        expect(reply["choices"] == wanted["choices"], "a reply is of one version's weights", str(reply))
    given = [as_float32(value) for value in new["choices"][0]["logprobs"]["token_logprobs"]]
    os.rename("model", "first"), os.rename("other", "model")
    wanted = logprobs_of(ask["prompt"] + new["choices"][0]["token_ids"])[1:]
    os.rename("model", "other"), os.rename("first", "model")
    expect(given == [as_float32(value) for value in wanted], "the new weights' log-probs")
    expect(server.post("/v1/weights", {"path": "model", "version": 40})["weights_version"] == 40, "a version by number")
    status, headers, info = server.request("GET", "/v1/weights")
    expect(info == {"weights_version": 40, "path": "model"} and headers["X-Weights-Version"] == "40", "and is told", str(info))
    server.end()


def tools():
    """A template with tools; the model's words are chance, so that only the way in is seen here."""
    write_model("tooled")
    path = "tooled/tokenizer_config.json"
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["chat_template"] = "{% if tools %}{{ tools | tojson }}\n{% endif %}" + TEMPLATE
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    server = Server("tooled")
    reply = server.post("/v1/chat/completions", {"messages": HI, "tools": [TOOL], "max_tokens": 4, "tool_choice": "auto",
                                                 "return_token_ids": True})
    prompt = server.post("/detokenize", {"tokens": reply["prompt_token_ids"]})["prompt"]
    expect('"name": "add"' in prompt, "the template shows the tools", prompt)
    server.end()


def broken_weights():
    """Logits that are not finite are the server's fault: status 500, and in a stream an error."""
    write_model("broken")
    path = "broken/model.safetensors"
    tensors = {name: (shape, array.array("f", data)) for name, (_, shape, data) in read_safetensors(path).items()}
    tensors["model.norm.weight"][1][3] = float("nan")
    write_safetensors(path, tensors)
    server = Server("broken")
    for temperature in (0, 1):
        reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 3, "temperature": temperature}, status=500)
        expect("not finite" in reply["error"]["message"], "what is wrong is said", str(reply))
    status, _, reply = server.request("POST", "/v1/chat/completions", {"messages": HI, "stream": True})
    expect(status == 500 and "not finite" in reply["error"]["message"], "a stream's first token", f"{status} {reply}")
    expect(server.request("GET", "/health")[0] == 200 and server.metric("tandem_kv_blocks") == server.metric("tandem_kv_blocks_free"),
           "the server lives")
    server.end()


def main():
    write_model("model")
    refused("a port that is taken", ["serve", "model", "--port", str(taken_port())], "cannot listen")
    refused("no model", ["serve", "nowhere"], "nowhere")
    server = Server("model", "--served-model-name", "tiny", "--max-model-len", "300", "--max-body-mb", "1")
    for part in (chats, exact, others, refusals, disconnects):
        part(server)
    hostile(server, HOSTILE)
    server.end()
    limits()
    drains()
    swaps()
    broken_weights()
    tools()
    print("serve: ok")


def taken_port():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    globals()["kept"] = listener
    return listener.getsockname()[1]


in_temporary_folder(main)
