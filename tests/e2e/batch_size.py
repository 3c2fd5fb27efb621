"""A slow rollout: batch_size.py PROGRAM. Steps take fewer prompts while the process is slowed down, and all again after;
a run that is killed makes its steps again with the same sizes. Standard library only."""
import json
import os
import signal
import threading
import time

from driver import expect, in_temporary_folder, lines, settings, start
from tiny_model import write_model

FULL, LESS = 512, 384
WORDS = dict(steps=100000, data__train_files="rows.jsonl", data__train_batch_size=FULL, data__max_response_length=4, actor_rollout_ref__rollout__n=1,
             actor_rollout_ref__actor__ppo_mini_batch_size=FULL, actor_rollout_ref__actor__use_kl_loss=False,
             reward__custom_reward_function__path="null", reward__rule="exact", trainer__save_freq=-1,
             data__adaptive_batch__min_size=LESS, data__adaptive_batch__low_utilization=0.3,
             data__adaptive_batch__high_utilization=0.4)


class Slowdown(threading.Thread):
    """A process that runs a tenth of the time."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over = pid, threading.Event()

    def run(self):
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.09)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.01)

    def end(self):
        self.over.set()
        self.join()


def sizes():
    return [int(m["rollout/prompts"]) for m in lines("run/metrics.jsonl")]


def wait_until(process, what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        expect(process.poll() is None and time.monotonic() < deadline, f"{what} did not come about: {sizes()}")
        time.sleep(0.02)


def main():
    write_model("model")
    with open("rows.jsonl", "w", encoding="utf-8") as out:
        for i in range(2 * FULL):
            row = {"data_source": "sums", "prompt": [{"role": "user", "content": f"{i} + 1 = ?"}],
                   "reward_model": {"ground_truth": str(i + 1)}}
            out.write(json.dumps(row) + "\n")
    command = settings("run", **WORDS)
    process = start(*command)
    wait_until(process, "full steps", lambda: len(sizes()) >= 4)
    slowdown = Slowdown(process.pid)
    slowdown.start()
    wait_until(process, "a smaller step", lambda: LESS in sizes())
    slowdown.end()
    smaller = sizes().index(LESS)
    wait_until(process, "a full step after the slowdown", lambda: FULL in sizes()[smaller:])
    process.kill()
    output = process.communicate()[0]
    before = sizes()
    expect(set(before) == {FULL, LESS}, f"sizes of steps: {before}", output)
    expect(f"{LESS} of {FULL} prompts a step" in output, "the change is not said", output)
    samples = lines("run/samples.jsonl")
    for step, size in enumerate(before, 1):
        found = sum(s["step"] == step for s in samples)
        expect(found == size, f"step {step} of {size} prompts has {found} samples")
    used = [m["rollout/utilization"] for m in lines("run/metrics.jsonl") if "rollout/utilization" in m]
    print(f"steps of {before}, utilization {[round(u, 2) for u in used]}")

    process = start(*command)
    wait_until(process, "a new start", lambda: len(sizes()) < len(before))
    wait_until(process, "the steps again", lambda: len(sizes()) >= len(before))
    process.kill()
    output = process.communicate()[0]
    expect(sizes()[:len(before)] == before, f"made again with other sizes: {sizes()}", output)
    again = lines("run/samples.jsonl")
    told = lambda all_of_them: [(s["step"], s["prompt_ids"], s["response_ids"]) for s in all_of_them][:sum(before)]
    expect(told(again) == told(samples), "other samples when made again", output)


in_temporary_folder(main)
