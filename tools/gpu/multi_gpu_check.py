#!/usr/bin/env python3
"""Everything that only several GPUs can show, in a few minutes, a line of JSON each.

usage: multi_gpu_check.py PROGRAM [--ranks N] [--device cuda|cpu] [--only PART,...] [--quick]

Parts: ranks (every exchange on device memory against host arithmetic; sharded training against one rank in the place of
all, bit for bit), failures (a rank that dies, one that hangs), train (whole runs: draws, resuming, a checkpoint of one
layout in another), verify (rollout's log-probs against the training forward's), reshard, step. --device cpu runs the
same with processes, on shapes of no size. Exit code 1 where something differs. Standard library only.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
import tiny_model  # noqa: E402
from driver import REWARD, in_temporary_folder, lines, settings, start, write  # noqa: E402

# The least that the GPU's kernels take.
tiny_model.VOCAB, tiny_model.HIDDEN, tiny_model.HEADS, tiny_model.KV_HEADS = 260, 128, 4, 2
tiny_model.HEAD_DIM, tiny_model.FF, tiny_model.LAYERS = 64, 256, 3

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "head_dim": 128,
    "num_key_value_heads": 8, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "vocab_size": 151936, "attention_bias": False, "torch_dtype": "bfloat16"}
SHAPES = {
    "0.6b": dict(QWEN3, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                 tie_word_embeddings=True),
    "8b": dict(QWEN3, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
               tie_word_embeddings=False),
    "none": dict(QWEN3, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, head_dim=64,
                 num_key_value_heads=2, vocab_size=520, tie_word_embeddings=True),
}
STEPS = 4
failures = []


def say(**line):
    print(json.dumps(line), flush=True)


def check(name, right, detail=""):
    say(name=name, right=bool(right), **({"detail": detail[-1500:]} if detail and not right else {}))
    if not right:
        failures.append(name)
    return right


def bench(name, *words):
    """Prints what it prints; wrong where it fails, or a line of it says so."""
    begin = time.monotonic()
    process = start("bench", *map(str, words))
    output = process.communicate(timeout=280)[0]
    say(name=f"bench {' '.join(map(str, words))}", seconds=round(time.monotonic() - begin, 1))
    found = []
    for line in output.splitlines():
        print(line, flush=True)
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    wrong = [line for line in found if line.get("right") is False or line.get("different", 0) > 0]
    check(name, process.returncode == 0 and not wrong, f"exit code {process.returncode}: {output}")
    return found


def train(folder, ranks, device, steps=STEPS):
    words = settings(folder, steps=steps, trainer__n_gpus_per_node=ranks, trainer__device=device,
                     data__val_files="data/test.parquet", trainer__test_freq=2)
    process = start(*words)
    output = process.communicate(timeout=280)[0]
    return check(f"train {folder} on {ranks}", process.returncode == 0, output)


def samples(folder, step=None):
    return [(s["prompt_ids"], s["response_ids"]) for s in lines(f"{folder}/samples.jsonl") if step in (None, s["step"])]


def validation(folder):
    """Of the first row that has any."""
    rows = [{k: v for k, v in row.items() if k.startswith("val")} for row in lines(f"{folder}/metrics.jsonl")]
    return next((row for row in rows if row), {})


def weights(folder, step):
    """By file: those of several ranks are several."""
    found, where = {}, f"{folder}/checkpoints/global_step_{step}/actor/huggingface"
    for name in sorted(os.listdir(where)):
        if name.endswith(".safetensors"):
            with open(f"{where}/{name}", "rb") as file:
                found[name] = file.read()
    return found


def whole_runs(o):
    if not all([train("one", 1, o.device), train("many", o.ranks, o.device), train("cut", o.ranks, o.device, 2)]):
        return
    check("the first step's draws are those of one rank", samples("many", 1) == samples("one", 1) != [])
    shutil.copytree("cut", "other")
    if train("cut", o.ranks, o.device):
        check("a resumed run ends with the same weights", weights("cut", STEPS) == weights("many", STEPS))
    if train("other", 1, o.device):
        check("one rank goes on from their checkpoint", samples("other", 3) == samples("many", 3) != [])
    first = [validation(folder) for folder in ("one", "many")]
    check("greedy validation before the first step is one rank's", first[0] == first[1] != {}, str(first))


def scaling(o):
    model, sizes = ("shapes/none", dict(prompts=8, samples=4, prompt=16, new=8)) if o.device == "cpu" else (
        "shapes/0.6b", dict(prompts=64, samples=8, prompt=128, new=256))
    words = ["--device", o.device, "--samples", sizes["samples"], "--prompt-tokens", sizes["prompt"], "--new-tokens",
             sizes["new"], "--repeats", 3 if o.quick else 6, "--prompts", sizes["prompts"]]
    words += ["--kv-cache-mb", 64, "--activation-mb", 64] if o.device == "cpu" else ["--kv-cache-mb", 60000]
    mean = {}
    for name, more in (("one", []), ("strong", ["--ranks", o.ranks]), ("weak", ["--ranks", o.ranks, "--weak"])):
        for line in bench(f"steps, {name}", "step", model, *words, *more):
            if line.get("name") == "steps":
                mean[name] = line
    if len(mean) < 3:
        return
    for part in ("mean_seconds", "rollout", "update"):
        say(name=f"scaling of {part}", ranks=o.ranks, weak=round(mean["one"][part] / mean["weak"][part], 4),
            strong=round(mean["one"][part] / mean["strong"][part] / o.ranks, 4))


def main():
    o = parsed
    write("reward.py", REWARD)
    tiny_model.write_model("model")
    for name, shape in SHAPES.items():
        os.makedirs(f"shapes/{name}")
        write(f"shapes/{name}/config.json", json.dumps(shape))
    process = start("data", "arithmetic", "--out", "data", "--seed", "3")
    output = process.communicate(timeout=60)[0]
    check("data", process.returncode == 0, output)
    ranks = ["--device", o.device, "--ranks", o.ranks]
    large = o.device == "cuda"
    small = ["--kv-cache-mb", 64, "--activation-mb", 64]
    parts = {
        "ranks": lambda: bench("ranks", "ranks", "model", *ranks),
        "failures": lambda: (bench("a dead rank", "dead-rank", "model", *ranks),
                             bench("a hanging rank", "hanging-rank", "model", *ranks, "--timeout", 20)),
        "train": lambda: whole_runs(o),
        "verify": lambda: bench("log-probs", "rollout", "shapes/0.6b" if large else "shapes/none", *ranks, "--verify",
                                "--prompts", 32 if large else 4, "--new-tokens", 64 if large else 8,
                                *(["--kv-cache-mb", 20000] if large else small)),
        "reshard": lambda: [bench(f"reshard {shape}", "reshard", f"shapes/{shape}", *ranks, "--repeats", 4)
                            for shape in (("0.6b", "8b") if large else ())],
        "step": lambda: scaling(o),
    }
    for name, part in parts.items():
        if o.only and name not in o.only.split(","):
            continue
        begin = time.monotonic()
        try:
            part()
        except Exception as error:  # the other parts still say something
            check(name, False, repr(error))
        say(name=f"part {name}", seconds=round(time.monotonic() - begin, 1))
    say(name="all", right=not failures, failures=failures)
    if failures:
        sys.exit(1)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--device", default="cuda")
parser.add_argument("--only", default="")
parser.add_argument("--quick", action="store_true")
parsed = parser.parse_args()
in_temporary_folder(main)
