"""A long run that is killed again and again: soak.py PROGRAM [--model DIR] [--minutes M] [--kill-every S] [--warm-up S]
[--seed N]. Prints what grew: memory (MB/h by least squares over each life after its warm-up), descriptors, threads,
processes, ports and files left behind. With a model, the quickstart's steps; without, a tiny model's. Standard library only;
not part of the tests, since it measures by the clock."""
import argparse
import os
import random
import signal
import subprocess
import time

from driver import PROGRAM, REWARD, expect, in_temporary_folder, lines, run, settings, write
from tiny_model import write_model

QUICKSTART = {  # as src/app/quickstart.cc sets them
    "data.train_batch_size": 8, "data.max_prompt_length": 96, "data.max_response_length": 4,
    "actor_rollout_ref.rollout.n": 8, "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
    "actor_rollout_ref.actor.use_kl_loss": False, "actor_rollout_ref.actor.optim.lr": 1e-5,
    "actor_rollout_ref.actor.optim.weight_decay": 0, "actor_rollout_ref.actor.optim.betas": "[0.9,0.99]",
}


def status(pid):
    """Resident MB, threads, open descriptors, children."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file)
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        children = [int(word) for word in file.read().split()]
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"]), len(os.listdir(f"/proc/{pid}/fd")), children


def slope(points):
    """Of y by x."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def listening():
    """Ports of this machine somebody listens on."""
    with open("/proc/net/tcp", encoding="utf-8") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}


def one_life(words, seconds):
    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    with open("log", "a", encoding="utf-8") as log:
        process = subprocess.Popen([PROGRAM, *words], stdout=log, stderr=log, env=env)
    begin = time.monotonic()
    seen = []
    while time.monotonic() - begin < seconds:
        time.sleep(1)
        expect(process.poll() is None, f"the run ended by itself with {process.returncode}")
        memory, threads, descriptors, children = status(process.pid)
        seen.append((time.monotonic() - begin, memory, threads, descriptors, children))
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(2)
    left = [pid for pid in seen[-1][4] if alive(pid) is not None]
    return seen, left


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--model", help="a real model's folder")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--kill-every", type=float, default=180)
    parser.add_argument("--warm-up", type=float, default=20, help="seconds of a life before memory counts")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    source = random.Random(arguments.seed)
    if arguments.model:
        os.symlink(os.path.abspath(arguments.model), "model")
    else:
        write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    words = settings("soak", steps=10**7, trainer__total_epochs=10**6, trainer__save_freq=50,
                     trainer__max_actor_ckpt_to_keep=2, **(QUICKSTART if arguments.model else {}))
    shared, ports = set(os.listdir("/dev/shm")), listening()
    end = time.monotonic() + 60 * arguments.minutes
    lives, left_processes = [], []
    while time.monotonic() < end:
        seconds = min(arguments.kill_every * source.uniform(0.7, 1.3), max(arguments.warm_up + 40, end - time.monotonic()))
        seen, left = one_life(words, seconds)
        left_processes += left
        points = [(t / 3600, memory) for t, memory, *_ in seen if t > arguments.warm_up]
        steps = lines("soak/metrics.jsonl")
        lives.append((slope(points), points[0][1], points[-1][1], seen[-1][2], seen[-1][3]))
        print(f"life {len(lives)}: {seconds:.0f} s, step {steps[-1]['step']}, {points[0][1]:.1f} -> {points[-1][1]:.1f} MB, "
              f"{lives[-1][0]:+.2f} MB/h, {seen[-1][2]} threads, {seen[-1][3]} descriptors, left running: {len(left)}",
              flush=True)
    checkpoints = sorted(os.listdir("soak/checkpoints"))
    journal = sorted(os.listdir("soak/journal"))
    expect([m["step"] for m in lines("soak/metrics.jsonl")] == list(range(1, len(lines("soak/metrics.jsonl")) + 1)),
           "steps are missing or twice in metrics.jsonl")
    print(f"lives {len(lives)}; steps {len(lines('soak/metrics.jsonl'))}; processes left {len(left_processes)}; "
          f"new in /dev/shm {sorted(set(os.listdir('/dev/shm')) - shared)}; new ports {sorted(listening() - ports)}; checkpoints {checkpoints}; journal {journal}; "
          f"mean slope {sum(life[0] for life in lives) / len(lives):+.2f} MB/h")


in_temporary_folder(main)
