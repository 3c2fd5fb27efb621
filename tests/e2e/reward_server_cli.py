"""A training run scored by a reward server in a process of its own: reward_server_cli.py PROGRAM SERVER_SCRIPT."""
import json
import os
import socket
import subprocess
import sys
import tempfile

from tiny_model import write_model

PROGRAM, SERVER = (os.path.abspath(path) for path in sys.argv[1:3])
STEPS = 3


def expect(condition, what, text=""):
    if not condition:
        print(f"FAILED: {what}\n{text}")
        sys.exit(1)


def start_server():
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, SERVER], stdin=theirs)
    theirs.close()
    return process, ours, f"http://127.0.0.1:{int(ours.makefile().readline())}"


def train(folder, endpoint, *more):
    values = {
        "actor_rollout_ref.model.path": "model",
        "data.train_files": "data/train.parquet",
        "data.val_files": "[]",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 256,
        "data.max_response_length": 8,
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "reward_model": "{type: vllm_api, endpoint: '%s', max_retries: 1}" % endpoint,
        "trainer.default_local_dir": f"{folder}/checkpoints",
        "trainer.total_training_steps": STEPS,
        "trainer.total_epochs": 1000,
        "trainer.logger": "[file]",
    }
    words = [PROGRAM, "train"] + [f"{key}={value}" for key, value in values.items()] + list(more)
    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, timeout=100)
    return done.returncode, done.stdout


def refused(what, code, output, *parts):
    errors = [line for line in output.splitlines() if "error" in line.lower()]
    expect(code not in (0, -6, -11), f"{what}: exit code {code}", output)
    expect(len(errors) == 1, f"{what}: expected one line of error", output)
    for part in parts:
        expect(part in errors[0], f"{what}: '{part}' is not named", output)


def main():
    write_model("model")
    subprocess.run([PROGRAM, "data", "arithmetic", "--out", "data"], check=True, stdout=subprocess.DEVNULL)
    server, line, origin = start_server()
    code, output = train("scored", f"{origin}/length/classify", "data.val_files=data/test.parquet",
                         "trainer.test_freq=1", "trainer.val_before_train=False")
    expect(code == 0, "training with a reward server", output)
    with open("scored/metrics.jsonl", encoding="utf-8") as file:
        metrics = [json.loads(text) for text in file]
    expect(len(metrics) == STEPS, "a line a step", output)
    for step in metrics:
        expect(step["reward_server/requests"] == 16, "one request a sample, validation aside", str(step))
        expect(step["reward_server/latency_s/p50"] <= step["reward_server/latency_s/p99"], "latencies", str(step))
    with open("scored/samples.jsonl", encoding="utf-8") as file:
        for sample in map(json.loads, file):
            expect(sample["score"] == len(sample["response"]) % 7, "the server's score", str(sample))
    code, output = train("unscored", f"{origin}/classify")  # responses are no numbers: the server gives up on them
    refused("a server that fails", code, output, "sample", f"{origin}/classify")
    line.close()
    server.wait(timeout=20)
    code, output = train("nowhere", f"{origin}/classify")
    refused("no server", code, output, origin, "cannot connect")
    print("reward server: ok")


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    try:
        main()
    finally:
        os.chdir("/")
