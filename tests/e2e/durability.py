"""Kills and storage faults: durability.py PROGRAM [--kills N] [--faults N] [--seed S]. However a run is disturbed, it ends
with the weights of the undisturbed one, and draws no finished sample again. Standard library and a C compiler only."""
import argparse
import os
import random
import shutil
import signal
import struct
import subprocess
import time

from driver import PROGRAM, REWARD, expect, in_temporary_folder, lines, run, settings, tensor_files, write
from tiny_model import write_model

STEPS = 8
RANKS = 1
SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "storage_faults.c")
PAUSE = 0.003  # a reward's, so that kills meet sampling too


def words(folder, pause=PAUSE, **overrides):
    ranks = dict(trainer__n_gpus_per_node=RANKS, trainer__device="cpu") if RANKS > 1 else {}
    return settings(folder, steps=STEPS, pause=pause, trainer__max_actor_ckpt_to_keep=3, **ranks, **overrides)


def state(folder):
    """Weights and moments, by file."""
    return tensor_files(f"{folder}/checkpoints/global_step_{STEPS}/actor")


def steady(metrics):
    """What depends neither on the clock nor on how much a resumed run had to draw."""
    return [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/", "rollout/"))} for m in metrics]


def same_run(folder, what, output=""):
    expect(state(folder) == state("whole"), f"{what}: other weights or moments than the undisturbed run's", output)
    for name in ("metrics.jsonl", "samples.jsonl"):
        a, b = lines(f"{folder}/{name}"), lines(f"whole/{name}")
        expect(steady(a) == steady(b), f"{what}: {name} ({len(a)} lines) differs from the undisturbed run's", output)


def samples_in_journal(folder):
    """How many whole records of samples stand in the journal, by step."""
    found = {}
    journal = f"{folder}/journal"
    for name in sorted(os.listdir(journal)) if os.path.isdir(journal) else []:
        if not name.startswith("after_"):
            continue
        with open(f"{journal}/{name}", "rb") as file:
            data = file.read()
        at = 0
        while at + 24 <= len(data):
            magic, kind, length, _ = struct.unpack_from("<4sIQQ", data, at)
            if magic != b"TJR1" or at + 24 + length > len(data):
                break
            if kind == 2:
                step = struct.unpack_from("<q", data, at + 24)[0]
                found[step] = found.get(step, 0) + 1
            at += 24 + length
    return found


def start(command, fault=""):
    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    if fault:
        env.update(LD_PRELOAD=os.path.abspath("storage_faults.so"), TANDEM_FAULT=fault)
    return subprocess.Popen([PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def finish(folder, what, **overrides):
    process = start(words(folder, **overrides))
    output = process.communicate(timeout=120)[0]
    expect(process.returncode == 0, f"{what}: the resumed run ended with {process.returncode}", output)
    same_run(folder, what, output)
    return output


def nothing_is_drawn_again():
    """A kill in the middle of a step: the next process takes every finished sample from the journal."""
    process = start(words("early", pause=0.05))
    deadline = time.monotonic() + 60
    while samples_in_journal("early").get(2, 0) < 16:
        expect(process.poll() is None and time.monotonic() < deadline, "the run to kill did not get going")
        time.sleep(0.005)
    process.kill()
    process.communicate()
    kept = samples_in_journal("early")
    expect(not os.path.isdir("early/checkpoints/global_step_2"), "the run was killed too late for this test")
    output = finish("early", "killed in step 2")
    recalled = sum(m["perf/journal_recalled_samples"] for m in lines("early/metrics.jsonl"))
    expect(recalled == sum(kept.values()), f"{recalled} samples came from the journal, which held {kept}", output)
    expect(not os.path.exists("early/journal"), "the journal of a run that is over is still there")


def random_kills(count, source, took):
    """kill -9 after a random time; again and again until the run ends by itself."""
    kills, campaign, moments_in_saves = 0, 0, 0
    while kills < count:
        folder = f"killed{campaign}"
        campaign += 1
        while True:
            process = start(words(folder))
            try:
                output = process.communicate(timeout=took * source.uniform(0.15, 1.0) if kills < count else 120)[0]
                expect(process.returncode == 0, "a resumed run failed", output)
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
                hidden = [n for n in os.listdir(f"{folder}/checkpoints") if n.startswith(".")] \
                    if os.path.isdir(f"{folder}/checkpoints") else []
                moments_in_saves += bool(hidden)
        same_run(folder, f"killed at random, {kills} kills in all")
        shutil.rmtree(folder)
    return moments_in_saves


# (call, how, part of the path, greatest n): where a process may die, and what a storage may answer
DEATHS = [("write", how, part, most) for how in ("die", "died") for part, most in
          (("checkpoints/", 40), ("journal/", 120), ("metrics.jsonl", 6), ("samples.jsonl", 90))]
DEATHS += [("fsync", "die", "checkpoints/", 30), ("rename", "die", "checkpoints/", 20), ("rename", "died", "checkpoints/", 20),
           ("fsync", "died", "journal/", 6)]
FAULTS = [("write", how, part, most) for how in ("ENOSPC", "EIO", "EDQUOT", "short") for part, most in
          (("checkpoints/", 40), ("journal/", 120))]
FAULTS += [("open", "EROFS", "checkpoints/", 8), ("fsync", "EIO", "checkpoints/", 30), ("rename", "EIO", "checkpoints/", 20),
           ("write", "lie", "actor/optim", 3), ("write", "lie", "journal/", 120)]


def faults(count, source):
    """One fault a run, at a random call; runs that die or fail are started again."""
    seen = {}
    for i in range(count):
        call, how, part, most = source.choice(DEATHS if i % 2 == 0 else FAULTS)
        times = source.choice((1, 1, 3))
        fault = f"{call}:{how}:{part}:{source.randint(1, most)}:{times}"
        folder = f"fault{i}"
        process = start(words(folder), fault)
        output = process.communicate(timeout=120)[0]
        seen[how] = seen.get(how, 0) + 1
        expect(process.returncode in (0, 2, -signal.SIGKILL), f"{fault}: exit code {process.returncode}", output)
        if how not in ("die", "died", "lie", "short") and process.returncode == 2:
            expect("the last checkpoint" in output, f"{fault}: the run ended early", output)
        finish(folder, fault)
        shutil.rmtree(folder)
    return seen


def broken_by_hand(source):
    """A kill, then damage: a bit that flips in any file, a missing one, a pointer to nowhere."""
    shutil.rmtree("hurt", ignore_errors=True)
    process = start(words("hurt"))
    while len(lines("hurt/metrics.jsonl")) < 7:
        expect(process.poll() is None, "the run to hurt ended early")
        time.sleep(0.005)
    process.kill()
    process.communicate()
    found = [os.path.join(where, name) for where, _, names in os.walk("hurt") for name in names
             if "checkpoints/global" in where or "journal" in where]
    expect(len(found) > 8, "there is little to hurt", str(found))
    for path in found + [None, "pointer"]:
        shutil.rmtree("again", ignore_errors=True)
        shutil.copytree("hurt", "again")
        if path is None:
            newest = max(os.listdir("again/checkpoints"), key=lambda n: n.startswith("global") and int(n[12:]))
            shard = sorted(n for n in os.listdir(f"again/checkpoints/{newest}/actor") if n.startswith("optim"))[-1]
            os.remove(f"again/checkpoints/{newest}/actor/{shard}")
            path = f"a missing {shard} of {newest}"
        elif path == "pointer":
            write("again/checkpoints/latest_checkpointed_iteration.txt", "6000")
        else:
            target = path.replace("hurt", "again", 1)
            with open(target, "r+b") as file:
                size = os.path.getsize(target)
                if size == 0:
                    continue
                at = source.randrange(size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ (1 << source.randrange(8))]))
        finish("again", f"damage in {path}")
    return len(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--faults", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=1, help="processes of the run, each with a file of its own in a checkpoint")
    parser.add_argument("--damage", action="store_true", help="hurt every file of a run, one at a time")
    arguments = parser.parse_args()
    source = random.Random(arguments.seed)
    global RANKS
    RANKS = arguments.ranks
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", "storage_faults.so", SHIM, "-ldl"], check=True)
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    begin = time.monotonic()
    run(*words("whole"))
    took = time.monotonic() - begin
    report = [f"undisturbed {took:.1f} s"]

    def part(name, work):
        begin = time.monotonic()
        result = work()
        report.append(f"{name} {'' if result is None else result} {time.monotonic() - begin:.1f} s")

    part("journal", nothing_is_drawn_again)
    part(f"{arguments.kills} kills, with half-written checkpoints:", lambda: random_kills(arguments.kills, source, took))
    part(f"{arguments.faults} faults", lambda: faults(arguments.faults, source))
    if arguments.damage:
        part("files hurt:", lambda: broken_by_hand(source))
    print("; ".join(report) + ": ok")


in_temporary_folder(main)
