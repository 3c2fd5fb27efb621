"""Ranks as Ray actors: ray_cli.py PROGRAM VENV. The run starts a Ray of its own, ends as one of local processes and one of
threads does, also after a rank is killed, and leaves no process. Exit code 77: no Ray here. Standard library only."""
import os
import signal
import sys
import time

from driver import PROGRAM, REWARD, expect, in_temporary_folder, lines, run, settings, start, tensor_files, wait_for_a_step, write
from tiny_model import write_model

STEPS = 4
VENV = sys.argv[2]


def words(folder, runtime, **overrides):
    ray = {"trainer__ray__autostart": True} if runtime == "ray" else {}
    return settings(folder, steps=STEPS, pause=0.02, trainer__n_gpus_per_node=2, trainer__device="cpu",
                    trainer__runtime=runtime, **ray, **overrides)


def weights(folder):
    return tensor_files(f"{folder}/checkpoints/global_step_{STEPS}/actor")


def steady(metrics):
    return [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/", "rollout/"))} for m in metrics]


def running(*marks):
    """Processes whose command line has all marks."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if int(entry) != os.getpid() and all(mark.encode() in command for mark in marks):
            found.append(int(entry))
    return found


def nobody_left(before):
    deadline = time.monotonic() + 20
    while left := [pid for pid in running("tandem_ray_") if pid not in before]:
        expect(time.monotonic() < deadline, f"Ray's processes are left: {left}")
        time.sleep(0.1)


def same_as_local(folder, output):
    expect(weights(folder) == weights("local"), f"{folder}: other weights than on local processes", output)
    a, b = lines(f"{folder}/metrics.jsonl"), lines("local/metrics.jsonl")
    expect(steady(a) == steady(b), f"{folder}: other metrics than on local processes", output)


def main():
    os.environ["TANDEM_RAY"] = VENV
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    run(*words("local", "local"))
    same_as_local("threads", run(*words("threads", "threads")))
    before = running("tandem_ray_")
    begin = time.monotonic()
    output = run(*words("calm", "ray"))
    print(f"two ranks on Ray, Ray's start and end included: {time.monotonic() - begin:.1f} s")
    expect("Ray actors" in output, "the table of workers does not name Ray", output)
    same_as_local("calm", output)
    nobody_left(before)

    process = start(*words("killed", "ray"))
    wait_for_a_step(process, "killed/metrics.jsonl")
    ranks = running("--rank", "killed/checkpoints")
    expect(len(ranks) == 1, f"ranks of the run: {ranks}")
    os.kill(ranks[0], signal.SIGKILL)
    output = process.communicate(timeout=100)[0]
    expect(process.returncode == 0, f"after a kill on Ray: exit code {process.returncode}", output)
    expect("rank 1" in output and "signal 9" in output, "the killed rank is not named", output)
    same_as_local("killed", output)
    metrics = lines("killed/metrics.jsonl")
    print("recovered in", [round(m["timing_s/recovery"], 2) for m in metrics if "timing_s/recovery" in m], "s")
    expect(metrics[-1].get("perf/recoveries") == 1, "the recovery is not counted", output)
    nobody_left(before)


if not os.path.exists(f"{os.path.dirname(PROGRAM)}/libtandem_ray.so") or not os.path.exists(f"{VENV}/bin/ray"):
    print("skipped: no Ray here (./dev setup ray, then ./dev build)")
    sys.exit(77)
in_temporary_folder(main)
