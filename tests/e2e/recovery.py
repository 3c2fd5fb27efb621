"""Lost workers: recovery.py PROGRAM [--count N] [--seed S] [--ranks N] [--jobs N] [--ray VENV]. Whatever is killed or
stopped, and whenever, the run ends with the undisturbed run's weights, every sample once, and nobody left behind. --jobs:
so many disturbed runs at once; for times leave it at 1. --ray: ranks are actors of one Ray, which stays. Standard library
only."""
import argparse
import concurrent.futures
import contextlib
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

from driver import REWARD, expect, in_temporary_folder, lines, run, settings, start, tensor_files, write
from tiny_model import write_model

STEPS = 8
KINDS = ("rank killed", "rank stopped", "reward worker killed", "controller killed")
HEARTBEAT = 1
RAY = {}


def words(folder, ranks, pause=0.01, **overrides):
    return settings(folder, steps=STEPS, pause=pause, trainer__n_gpus_per_node=ranks, trainer__device="cpu",
                    trainer__fault__heartbeat_timeout=HEARTBEAT, trainer__checkpoint__memory_freq=3,
                    trainer__save_freq=4, **RAY, **overrides)


def state(folder):
    return tensor_files(f"{folder}/checkpoints/global_step_{STEPS}/actor")


def steady(metrics):
    """What depends neither on the clock nor on what was made again."""
    return [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/", "rollout/"))} for m in metrics]


def same_run(folder, what, output):
    expect(state(folder) == state("whole"), f"{what}: other weights than the undisturbed run's", output)
    samples = lines(f"{folder}/samples.jsonl")
    for step in range(1, STEPS + 1):
        found = sum(s["step"] == step for s in samples)
        expect(found == 16, f"{what}: step {step} has {found} samples instead of 16", output)
    for name in ("samples.jsonl", "metrics.jsonl"):
        a, b = lines(f"{folder}/{name}"), lines(f"whole/{name}")
        expect(steady(a) == steady(b), f"{what}: {name} ({len(a)} lines) differs from the undisturbed run's", output)


def processes():
    """parent and command line by id, of all that run."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                status, parent = file.read().rsplit(")", 1)[1].split()[:2]
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if status != "Z":
            found[int(entry)] = (int(parent), command)
    return found


def children(pid, mark):
    return [child for child, (parent, command) in processes().items() if parent == pid and mark in command]


def ranks_of(folder):
    """Of a run: its other ranks, whoever started them."""
    mark = f"{folder}/checkpoints".encode()
    return [pid for pid, (_, command) in processes().items() if b"--rank" in command and mark in command]


def nobody_left(folder, what):
    deadline = time.monotonic() + 10
    mark = f"{folder}/checkpoints".encode()
    while True:
        left = [pid for pid, (_, command) in processes().items() if mark in command]
        if not left:
            return
        expect(time.monotonic() < deadline, f"{what}: processes are left: {left}")
        time.sleep(0.05)


def disturb(kind, process, folder, source):
    """True: it was done."""
    if kind == "controller killed":
        process.kill()
        return True
    found = children(process.pid, b"compute_score") if kind.startswith("reward") else ranks_of(folder)
    if not found:
        return False
    try:
        os.kill(source.choice(sorted(found)), signal.SIGSTOP if kind == "rank stopped" else signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def trial(number, kind, ranks, source, step_seconds):
    """The seconds of the recovery, as the run tells them and until its next step was done; nothing where the run was over
    before, or nobody had to recover."""
    folder = f"run{number}"
    command = words(folder, ranks)
    process = start(*command)
    deadline = time.monotonic() + 60
    first = kind == "controller killed"
    # A rank can be lost as soon as it is there; what is before the start of the run has no state to come back to.
    while not ranks_of(folder) or not os.path.exists(f"{folder}/log.jsonl"):
        expect(process.poll() is None and time.monotonic() < deadline, "the run to disturb did not get going")
        time.sleep(0.01)
    first_step = source.randrange(STEPS - 1)
    while len(lines(f"{folder}/metrics.jsonl")) < first_step and process.poll() is None:
        time.sleep(0.002)
    time.sleep(source.uniform(0, step_seconds))
    before = len(lines(f"{folder}/metrics.jsonl"))
    begin = time.monotonic()
    if process.poll() is not None or not disturb(kind, process, folder, source):
        process.communicate(timeout=60)
        shutil.rmtree(folder)
        return None
    if first:
        process.communicate()
        process = start(*command)
    until_step = None
    while process.poll() is None:
        if until_step is None and len(lines(f"{folder}/metrics.jsonl")) > before:
            until_step = time.monotonic() - begin
        expect(time.monotonic() - begin < 100, f"{kind}: the run does not end")
        time.sleep(0.01)
    output = process.communicate()[0]
    expect(process.returncode == 0, f"{kind} after {before} steps: exit code {process.returncode}", output)
    same_run(folder, f"{kind} after {before} steps", output)
    nobody_left(folder, kind)
    metrics = lines(f"{folder}/metrics.jsonl")
    told = [m["timing_s/recovery"] for m in metrics if "timing_s/recovery" in m]
    shutil.rmtree(folder)
    if kind.startswith("rank"):
        if not told:
            return None  # in its last moments
        expect("rank 1" in output or "rank 2" in output or "rank 3" in output, f"{kind}: no rank is named", output)
        expect(("no sign of life" if kind == "rank stopped" else "signal 9") in output, f"{kind}: how it ended is not said",
               output)
    return (told[0] if told else None, until_step)


def too_many_losses(ranks):
    """The breaker: the second loss ends the run, with its state on disk; started again it ends as the undisturbed one."""
    # On Ray ranks are back late: steps that take longer leave time for the second loss.
    command = words("breaker", ranks, pause=0.04 if RAY else 0.01, trainer__fault__max_restarts=1)
    process = start(*command)
    for steps in (1, 3):
        deadline = time.monotonic() + 60
        while len(lines("breaker/metrics.jsonl")) < steps or not ranks_of("breaker"):
            expect(process.poll() is None and time.monotonic() < deadline, "the run to disturb did not get going")
            time.sleep(0.005)
        expect(disturb("rank killed", process, "breaker", random.Random(0)), "there is no rank to kill")
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 2, f"after more losses than allowed: exit code {process.returncode}", output)
    for part in ("rank 1", "signal 9", "trainer.fault.max_restarts"):
        expect(part in output, f"the breaker does not name {part}", output)
    nobody_left("breaker", "the breaker")
    expect(os.listdir("breaker/checkpoints"), "the breaker saved nothing", output)
    output = run(*command)
    same_run("breaker", "the run after the breaker", output)


def disturbed(number, kind, arguments, step_seconds):
    """Until a disturbance of this kind came in time."""
    source = random.Random(arguments.seed * 1000 + number)
    for attempt in range(8):
        result = trial(f"{number}_{attempt}", kind, arguments.ranks, source, step_seconds)
        if result:
            print(f"{kind}: " + ", ".join(f"{name} {value:.2f} s" for name, value in
                                         zip(("recovered in", "next step done after"), result) if value is not None),
                  flush=True)
            return kind, result
    expect(False, f"{kind}: disturbances keep coming too late")


def own_address():
    """By which others reach this machine; Ray takes no loopback. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("8.8.8.8", 53))
        return probe.getsockname()[0]


@contextlib.contextmanager
def standing_ray(venv):
    """A Ray of its own that all runs use; its address."""
    os.environ["TANDEM_RAY"] = venv
    with tempfile.TemporaryDirectory(prefix="tandem_ray_") as folder, socket.socket() as free:
        host = own_address()
        free.bind((host, 0))
        port = free.getsockname()[1]
        free.close()
        log = f"{folder}/start.log"
        with open(log, "w", encoding="utf-8") as out:
            process = subprocess.Popen(
                [f"{venv}/bin/ray", "start", "--head", "--block", f"--node-ip-address={host}", f"--port={port}",
                 "--num-cpus=64", "--include-dashboard=false", "--disable-usage-stats",
                 "--object-store-memory=100000000", f"--temp-dir={folder}"], stdout=out, stderr=out,
                env=dict(os.environ, RAY_worker_niceness="0", PYTHONUNBUFFERED="1"), start_new_session=True)
        try:
            deadline = time.monotonic() + 300
            while "Ray runtime started" not in open(log, encoding="utf-8").read():
                expect(process.poll() is None and time.monotonic() < deadline, "Ray did not start",
                       open(log, encoding="utf-8").read())
                time.sleep(0.1)
            yield f"{host}:{port}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--ray", metavar="VENV")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if arguments.ray:
            address = stack.enter_context(standing_ray(arguments.ray))
            RAY.update(trainer__runtime="ray", trainer__ray__address=address)
        disturb_all(arguments)


def disturb_all(arguments):
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    begin = time.monotonic()
    run(*words("whole", arguments.ranks))
    step_seconds = statistics.median(m["timing_s/step"] for m in lines("whole/metrics.jsonl"))
    print(f"undisturbed {time.monotonic() - begin:.1f} s, a step {step_seconds:.2f} s", flush=True)
    results = {kind: [] for kind in KINDS}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        breaker = pool.submit(too_many_losses, arguments.ranks)
        trials = [pool.submit(disturbed, number, KINDS[number % len(KINDS)], arguments, step_seconds)
                  for number in range(arguments.count)]
        for done in trials:
            kind, result = done.result()
            results[kind].append(result)
        breaker.result()
    for kind, found in results.items():
        for name, values in zip(("recovery", "to the next step"), zip(*found)):
            known = [v for v in values if v is not None]
            if known:
                print(f"{kind}: {len(known)} times, {name}: median {statistics.median(known):.2f} s, "
                      f"most {max(known):.2f} s")
    print(f"all seen in {time.monotonic() - begin:.0f} s: ok")


in_temporary_folder(main)
