"""Drives the built program: train_cli.py PROGRAM. Standard library only; exit code 1 at a surprise."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tiny_model import read_safetensors, write_model

PROGRAM = os.path.abspath(sys.argv[1])
STEPS = 8
REWARD = """
import os, time
def compute_score(data_source, solution_str, ground_truth, extra_info, pause=0.0):
    time.sleep(pause)
    return {"score": (sum(solution_str.encode()) % 7) / 7, "odd": len(solution_str) % 2}
def broken(data_source, solution_str, ground_truth, extra_info, pause=0.0):
    raise ValueError("no verdict today")
"""


def fail(what, text=""):
    print(f"FAILED: {what}\n{text}")
    sys.exit(1)


def expect(condition, what, text=""):
    if not condition:
        fail(what, text)


def start(*words):
    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    return subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def run(*words, code=0):
    process = start(*words)
    output = process.communicate(timeout=100)[0]
    expect(process.returncode == code, f"{' '.join(words)}: exit code {process.returncode}, expected {code}", output)
    return output


def refused(name, words, *parts):
    """The command fails with one line that names `parts`."""
    process = start(*words)
    output = process.communicate(timeout=100)[0]
    expect(process.returncode not in (0, -6, -11), f"{name}: exit code {process.returncode}", output)
    for part in parts:
        expect(part in output, f"{name}: '{part}' is not named", output)
    errors = [line for line in output.splitlines() if "error" in line.lower()]
    expect(len(errors) == 1, f"{name}: expected one line of error", output)


def settings(folder, steps=STEPS, pause=0.0, **overrides):
    values = {
        "actor_rollout_ref.model.path": "model",
        "data.train_files": "data/train.parquet",
        "data.val_files": "[]",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 256,
        "data.max_response_length": 8,
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
        "actor_rollout_ref.actor.optim.lr": 1e-3,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "algorithm.adv_estimator": "grpo",
        "reward.custom_reward_function.path": "reward.py",
        "reward.custom_reward_function.reward_kwargs.pause": pause,
        "reward.num_workers": 1,
        "trainer.default_local_dir": f"{folder}/checkpoints",
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": 1000,
        "trainer.save_freq": 2,
        "trainer.logger": "[file]",
    }
    values.update({key.replace("__", "."): value for key, value in overrides.items()})
    return ["train"] + [f"{key}={value}" for key, value in values.items()]


def weights(folder, step=STEPS):
    with open(f"{folder}/checkpoints/global_step_{step}/actor/huggingface/model.safetensors", "rb") as file:
        return file.read()


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def steady(metrics):
    """What must not depend on the clock."""
    clock = ("timing", "perf/")
    return [{k: v for k, v in m.items() if not k.startswith(clock)} for m in metrics]


def same_run(folder, whole, what):
    expect(weights(folder) == weights(whole), f"{what}: other weights than the uninterrupted run's")
    for name in ("metrics.jsonl", "samples.jsonl"):
        a, b = lines(f"{folder}/{name}"), lines(f"{whole}/{name}")
        expect(steady(a) == steady(b), f"{what}: {name} ({len(a)} lines) differs from the uninterrupted run's")


def uninterrupted():
    begin = time.monotonic()
    run(*settings("whole", pause=0.003))
    took = time.monotonic() - begin
    steps = [m["training/global_step"] for m in lines("whole/metrics.jsonl")]
    expect(steps == list(range(1, STEPS + 1)), "metrics.jsonl lacks steps", str(steps))
    expect(weights("whole", 2) != weights("whole"), "training changed nothing")
    sample = lines("whole/samples.jsonl")[0]
    expect(len(lines("whole/samples.jsonl")) == 16 * STEPS, "samples.jsonl lacks samples", str(sample))
    return took


def killed_runs(took):
    source, kills, campaign = random.Random(3), 0, 0
    while kills < 6:
        folder = f"killed{campaign}"
        campaign += 1
        while True:
            process = start(*settings(folder, pause=0.003))
            try:
                process.communicate(timeout=took * source.uniform(0.2, 0.9) if kills < 6 else 100)
                expect(process.returncode == 0, "a resumed run failed")
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
        same_run(folder, "whole", f"killed and resumed {kills} times")
    return kills


def interrupted_run():
    process = start(*settings("stopped", steps=500, pause=0.01, trainer__save_freq=100))
    deadline = time.monotonic() + 60
    while len(lines("stopped/metrics.jsonl")) < 1:
        expect(process.poll() is None and time.monotonic() < deadline, "the run to interrupt did not get going")
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 130, f"after Ctrl-C: exit code {process.returncode}, expected 130", output)
    last = int(lines("stopped/metrics.jsonl")[-1]["training/global_step"])
    saved = f"stopped/checkpoints/global_step_{last}"
    expect(os.path.isdir(saved), f"Ctrl-C made no {saved}", output)
    expect(last < 400, "Ctrl-C was not heeded")
    run(*settings("stopped", steps=last + 1))
    steps = [m["training/global_step"] for m in lines("stopped/metrics.jsonl")]
    expect(steps == list(range(1, last + 2)), "steps are missing after Ctrl-C and resuming", str(steps))


def broken_checkpoints():
    shutil.copytree("whole", "broken")
    newest = f"broken/checkpoints/global_step_{STEPS}"
    path = f"{newest}/actor/huggingface/model.safetensors"
    os.truncate(path, os.path.getsize(path) - 100)
    output = run(*settings("broken"))
    expect(f"global_step_{STEPS}" in output, "the broken checkpoint is not named", output)
    same_run("broken", "whole", "resumed past a broken checkpoint")
    os.truncate(path, 100)
    refused("explicit broken checkpoint",
            settings("broken", trainer__resume_mode="resume_path", trainer__resume_from_path=newest),
            f"global_step_{STEPS}")


def prompt_lengths():
    """The template adds 19 tokens of bytes: prompts of 33, 34 and 35 where 34 are allowed."""
    rows = [{"data_source": "x", "prompt": [{"role": "user", "content": "abcdefghijklmnop"[:n]}], "extra_info": {},
             "reward_model": {"style": "rule", "ground_truth": "1"}} for n in (14, 15, 16)]
    write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    common = dict(data__train_files="rows.jsonl", data__max_prompt_length=34, data__train_batch_size=1,
                  data__shuffle=False, actor_rollout_ref__actor__ppo_mini_batch_size=1, trainer__total_epochs=1)
    refused("an overlong prompt", settings("x", **common), "rows.jsonl", "row 2", "35", "34")
    whole = [257, *b"user\nabcdefghijklmnop", 258, *b"\n", 257, *b"assistant\n"]
    for how, kept in (("left", whole[1:]), ("right", whole[:-1])):
        run(*settings(how, steps="null", data__truncation=how, **common))
        samples = lines(f"{how}/samples.jsonl")
        expect(len(samples) == 12 and samples[-1]["prompt_ids"] == kept, f"truncation={how}", str(samples[-1]))
    output = run(*settings("filtered", steps="null", data__filter_overlong_prompts=True, **common))
    expect("1 of 3" in output and len(lines("filtered/metrics.jsonl")) == 2, "filtering drops one of three", output)
    refused("all filtered", settings("x", **{**common, "data__max_prompt_length": 20},
                                     data__filter_overlong_prompts=True), "dataset empty")
    refused("bad truncation", settings("x", data__truncation="sideways"), "sideways", "left")


def errors():
    refused("unknown key", settings("x") + ["actor_rollout_ref.rollout.temprature=1"], "temprature", "temperature")
    refused("no model", settings("x", actor_rollout_ref__model__path="nowhere/at/all"), "nowhere/at/all")
    refused("a reward that raises", settings("x", reward__custom_reward_function__name="broken"),
            "no verdict today", "sample")
    refused("min_tokens over max", settings("x", actor_rollout_ref__rollout__min_tokens=9), "min_tokens")
    refused("a negative temperature", settings("x", actor_rollout_ref__rollout__temperature=-1), "temperature")
    write_model("sharded", shards=2)
    expect(run("logprobs", "sharded", "ids.jsonl") == run("logprobs", "model", "ids.jsonl"), "shards change the model")
    shard = "model-00002-of-00002.safetensors"
    shutil.copy("model/model.safetensors", "sharded/model.safetensors")
    expect(run("logprobs", "sharded", "ids.jsonl") == run("logprobs", "model", "ids.jsonl"), "a stray file was read")
    size = os.path.getsize(f"sharded/{shard}")
    os.truncate(f"sharded/{shard}", size - 100)
    refused("a short shard", ["logprobs", "sharded", "ids.jsonl"], shard)
    os.remove(f"sharded/{shard}")
    refused("a missing shard", settings("x", actor_rollout_ref__model__path="sharded"), shard)


def small_commands():
    expect(run("version").startswith("tandem "), "version")
    with open("ids.jsonl", "w", encoding="utf-8") as out:
        source = random.Random(1)
        for length in (2, 15, 16, 17, 33, 100):
            out.write(json.dumps({"input_ids": [source.randrange(259) for _ in range(length)]}) + "\n")
        chat = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
        out.write(json.dumps({"messages": chat}))
    by_path = [run("logprobs", "model", "ids.jsonl", "--path", path, "--temperature", "0.7", "--threads", threads)
               for path, threads in (("train", "1"), ("train", "2"), ("rollout", "1"))]
    expect(len(set(by_path)) == 1, "the training and the rollout path print different log-probs", "\n".join(by_path))
    expect(by_path[0].count("\n") == 7, "one line for each line", by_path[0])
    refused("an id out of range", ["logprobs", "model", write("bad.jsonl", '{"input_ids": [1, 259]}\n')], "259", "258")

    prompts = write("prompts.jsonl", '{"prompt": "hello"}\n{"messages": [{"role": "user", "content": "1+1?"}]}\n')
    words = ["generate", "model", prompts, "-n", "2", "--max-tokens", "5", "--seed", "4"]
    answers = [json.loads(line) for line in run(*words).splitlines()]
    names = sorted((a["prompt"], a["sample"]) for a in answers)
    expect(names == [(0, 0), (0, 1), (1, 0), (1, 1)], "answers", str(answers))
    expect(all(len(a["logprobs"]) == len(a["response_ids"]) <= 5 for a in answers), "answers' lengths", str(answers))
    expect(answers == [json.loads(line) for line in run(*words, "--threads", "1").splitlines()], "answers differ")
    refused("a message without a role", ["generate", "model", write("bad.jsonl", '{"messages": [{"content": "x"}]}\n')],
            "line 1", "role")
    expect(start("generate", "model", prompts, "-n", "0").wait(timeout=60) != 0, "-n 0 was accepted")

    run("convert", "model", "copy", "--dtype", "fp32")
    expect(read_safetensors("copy/model.safetensors") == read_safetensors("model/model.safetensors"),
           "convert to fp32 changed a tensor")
    run("convert", "copy", "half")
    run("convert", "half", "half_again")
    half = read_safetensors("half/model.safetensors")
    expect(half == read_safetensors("half_again/model.safetensors"), "convert bf16 to bf16 changed a tensor")
    expect(all(dtype == "BF16" for dtype, _, _ in half.values()), "convert's default is bf16")
    refused("convert onto a model", ["convert", "model", "half"], "half")


def write(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def validation():
    output = run(*settings("checked", steps=2, data__val_files="data/test.parquet", trainer__test_freq=1))
    metrics = lines("checked/metrics.jsonl")
    expect(any(key.startswith("val-core/") for key in metrics[-1]), "no validation metrics", output)


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    report = []
    parts = {"commands": small_commands, "errors": errors, "prompt lengths": prompt_lengths, "validation": validation}
    for name, part in parts.items():
        begin = time.monotonic()
        part()
        report.append(f"{name} {time.monotonic() - begin:.1f} s")
    took = uninterrupted()
    begin = time.monotonic()
    kills = killed_runs(took)
    report.append(f"uninterrupted {took:.1f} s, {kills} kills {time.monotonic() - begin:.1f} s")
    begin = time.monotonic()
    interrupted_run()
    broken_checkpoints()
    print("; ".join(report) + f"; interrupt and broken checkpoints {time.monotonic() - begin:.1f} s: ok")


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    try:
        main()
    finally:
        os.chdir("/")
