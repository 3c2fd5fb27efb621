"""Roles in processes of their own: pools.py PROGRAM. PPO ends with the same weights, values and metrics wherever its critic
and reference work, also after the critic's process is killed. Standard library only."""
import os
import signal
import time

from driver import (REWARD, expect, in_temporary_folder, lines, refused, run, settings, start, tensor_files, wait_for_a_step,
                    write)
from tiny_model import write_model

STEPS = 4
PPO = dict(algorithm__adv_estimator="gae", critic__optim__lr=1e-3, trainer__device="cpu")
OWN = dict(trainer__resource_pools__critic="own", trainer__resource_pools__reference="own")


def words(folder, **overrides):
    return settings(folder, steps=STEPS, **PPO, **overrides)


def state(folder):
    return tensor_files(f"{folder}/checkpoints/global_step_{STEPS}")


def steady(metrics):
    return [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/", "rollout/"))} for m in metrics]


def same(folder, other, output=""):
    a, b = state(folder), state(other)
    expect(a.keys() == b.keys(), f"{folder}: other files than {other}", output)
    for name in a:
        expect(a[name] == b[name], f"{folder}: {name} differs from {other}'s", output)
    expect(steady(lines(f"{folder}/metrics.jsonl")) == steady(lines(f"{other}/metrics.jsonl")),
           f"{folder}: other metrics than {other}", output)


def process_of(role, folder):
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if f"--role\0{role}\0".encode() in command and f"{folder}/checkpoints".encode() in command:
            return int(entry)
    return None


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    run(*words("colocated"))
    output = run(*words("split", **OWN))
    for role in ("critic", "reference"):
        expect(f" {role} " in output, f"the table of processes has no {role}", output)
    same("split", "colocated", output)
    run(*words("ranks", trainer__n_gpus_per_node=2))
    run(*words("ranks_split", trainer__n_gpus_per_node=2, trainer__resource_pools__critic="own"))
    same("ranks_split", "ranks")

    process = start(*words("killed", pause=0.02, **OWN))
    wait_for_a_step(process, "killed/metrics.jsonl")
    os.kill(process_of("critic", "killed"), signal.SIGKILL)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 0, f"after the critic was killed: exit code {process.returncode}", output)
    expect("critic rank" in output and "signal 9" in output, "the lost critic is not named", output)
    same("killed", "colocated", output)
    time.sleep(0.2)
    expect(process_of("critic", "killed") is None, "a critic is left behind")
    refused("a critic where there is none", settings("x", trainer__resource_pools__critic="own"),
            "trainer.resource_pools.critic")


in_temporary_folder(main)
