"""Weights and disks that fail: one line that names the file, never a wrong number. Cases MODEL-1 and CKPT-1 (vi):
broken_files.py PROGRAM. Standard library only."""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess

from driver import PROGRAM, REWARD, expect, in_temporary_folder, lines, refused, run, settings, write
from tiny_model import FF, HIDDEN, dump, write_model

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
DOWN = "model.layers.0.mlp.down_proj.weight"


def fresh():
    shutil.rmtree("sharded", ignore_errors=True)
    write_model("sharded", shards=2)


def logprobs(folder="sharded"):
    return ["logprobs", folder, "ids.jsonl"]


def edit_index(change):
    with open(f"sharded/{INDEX}", encoding="utf-8") as file:
        index = json.load(file)
    change(index["weight_map"])
    dump(f"sharded/{INDEX}", index)


def shard_of(name):
    with open(f"sharded/{INDEX}", encoding="utf-8") as file:
        return json.load(file)["weight_map"][name]


def edit_header(path, change):
    """Rewrites a safetensors header and leaves the data as it is."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data[8 + size :])


def broken_by_hand():
    wanted = run(*logprobs("model"))
    fresh()
    expect(run(*logprobs()) == wanted, "shards change the model")

    os.remove(f"sharded/{SECOND}")  # (i)
    refused("a missing shard", logprobs(), SECOND, "missing")
    refused("a missing shard, training", settings("x", actor_rollout_ref__model__path="sharded"), SECOND, "missing")

    fresh()  # (ii)
    os.truncate(f"sharded/{SECOND}", os.path.getsize(f"sharded/{SECOND}") - 100)
    refused("a short shard", logprobs(), SECOND, "shorter than its header says")
    refused("a short shard, training", settings("x", actor_rollout_ref__model__path="sharded"), SECOND)

    fresh()  # (iii): other values, and a shard that no index names
    write("sharded/model-00003-of-00003.safetensors", "not weights at all")
    shutil.copy(f"sharded/{FIRST}", "sharded/model.safetensors")
    expect(run(*logprobs()) == wanted, "a stray file was read")

    fresh()  # (iv)
    right = shard_of(DOWN)
    wrong = SECOND if right == FIRST else FIRST
    edit_index(lambda where: where.update({DOWN: wrong}))
    refused("a tensor in the other shard", logprobs(), wrong, DOWN, "is not in it")

    for name in ("../x.safetensors", os.path.abspath("x.safetensors"), ".."):  # (v), although the file is there
        fresh()
        shutil.copy(f"sharded/{right}", "x.safetensors")
        edit_index(lambda where: where.update({key: name for key, file in where.items() if file == right}))
        refused(f"a shard named {name}", logprobs(), INDEX, name, "refused")

    for length in (10**6, 2**63, 2**64 - 1):  # (vi)
        fresh()
        with open(f"sharded/{FIRST}", "r+b") as file:
            file.write(struct.pack("<Q", length))
        refused(f"a header of {length} bytes", logprobs(), FIRST, "shorter than its header says", str(length))

    fresh()  # (vii): as many bytes as there should be, in another shape or type
    edit_header(f"sharded/{right}", lambda header: header[DOWN].update(shape=[FF, HIDDEN]))
    refused("a transposed tensor", logprobs(), DOWN, f"[{FF}, {HIDDEN}]", f"[{HIDDEN}, {FF}]")
    fresh()
    edit_header(f"sharded/{right}", lambda header: header[DOWN].update(dtype="I32"))
    refused("a tensor of whole numbers", logprobs(), DOWN, "I32", "F32")


def files_of(folder):
    out = {}
    for where, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                out[os.path.relpath(os.path.join(where, name), folder)] = file.read()
    return out


def full_disk():
    """A limit on a file's size stands for a disk that is full in the middle of the optimizer's state."""
    run(*settings("whole", steps=4))
    run(*settings("full", steps=2))
    saved = "full/checkpoints/global_step_2"
    before = files_of(saved)
    limit = os.path.getsize(f"{saved}/actor/optim.safetensors") * 3 // 4
    expect(limit > os.path.getsize("full/samples.jsonl") * 3, "the limit would hit the samples first")

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    done = subprocess.run([PROGRAM, *settings("full", steps=4)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=env, preexec_fn=limited, timeout=100)
    expect(done.returncode == 2, f"a full disk: exit code {done.returncode}, expected 2", done.stdout)
    errors = [line for line in done.stdout.splitlines() if " error " in line]
    expect(len(errors) == 1 and "optim.safetensors" in errors[0] and "File too large" in errors[0],
           "a full disk: one line names the file and the reason", done.stdout)
    expect(files_of(saved) == before, "a full disk: the earlier checkpoint changed")
    left = sorted(os.listdir("full/checkpoints"))
    expect(left == ["global_step_2", "latest_checkpointed_iteration.txt"], "a full disk left a half checkpoint", str(left))
    run(*settings("full", steps=4))
    for step in (2, 4):
        name = f"checkpoints/global_step_{step}/actor/huggingface/model.safetensors"
        expect(files_of("full")[name] == files_of("whole")[name], f"after a full disk: other weights at step {step}")
    expect([m["training/global_step"] for m in lines("full/metrics.jsonl")] == [1, 2, 3, 4], "steps are missing")


def main():
    write_model("model")
    write("reward.py", REWARD)
    write("ids.jsonl", json.dumps({"input_ids": list(range(40, 80))}) + "\n")
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    broken_by_hand()
    full_disk()
    print("broken weights and a full disk: ok")


in_temporary_folder(main)
