"""A rank that is lost for good: elastic.py PROGRAM. The run goes on with the ranks that are left, takes the lost one back
when it can come again, and ends as a run that was resumed with those numbers of ranks. Standard library only."""
import os
import signal
import threading
import time

from driver import REWARD, expect, in_temporary_folder, lines, run, settings, start, tensor_files, write
from tiny_model import write_model

STEPS, LOST = 16, 3


def words(folder, ranks=4, steps=STEPS, pause=0.01, **overrides):
    return settings(folder, steps=steps, pause=pause, trainer__n_gpus_per_node=ranks, trainer__device="cpu",
                    trainer__save_freq=1, trainer__fault__heartbeat_timeout=5, trainer__fault__replace_timeout=1,
                    trainer__fault__grow_interval=0.5, **overrides)


def state(folder, step=STEPS):
    return tensor_files(f"{folder}/checkpoints/global_step_{step}/actor")


class Absence(threading.Thread):
    """While it lasts, the rank is killed wherever it shows: a machine that is gone."""

    def __init__(self, folder, rank):
        super().__init__(daemon=True)
        self.mark, self.rank = f"{folder}/checkpoints".encode(), f"--rank\0{rank}\0".encode()
        self.over, self.kills = threading.Event(), 0

    def run(self):
        while not self.over.wait(0.01):
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        command = file.read()
                    if self.rank in command and self.mark in command:
                        os.kill(int(entry), signal.SIGKILL)
                        self.kills += 1
                except OSError:
                    continue

    def end(self):
        self.over.set()
        self.join()


def wait_until(process, what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        expect(process.poll() is None and time.monotonic() < deadline, f"{what} did not come about")
        time.sleep(0.01)


def goes_on_and_grows_back():
    process = start(*words("elastic", pause=0.03))
    ranks = lambda: [m["perf/ranks"] for m in lines("elastic/metrics.jsonl")]
    wait_until(process, "the second step", lambda: len(ranks()) >= 2)
    absence = Absence("elastic", LOST)
    begin = time.monotonic()
    absence.start()
    wait_until(process, "a step of fewer ranks", lambda: ranks()[-1:] == [3])
    print(f"a step of three ranks {time.monotonic() - begin:.1f} s after the loss of the fourth")
    wait_until(process, "a look for the missing rank", lambda: len(ranks()) > 2 and absence.kills >= 3)
    absence.end()
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 0, f"exit code {process.returncode}", output)
    seen = ranks()
    fewer = [step for step, count in enumerate(seen, 1) if count == 3]
    expect(len(seen) == STEPS and fewer and seen == [4] * (fewer[0] - 1) + [3] * len(fewer) + [4] * (STEPS - fewer[-1]),
           f"ranks by step: {seen}", output)
    expect(seen[-1] == 4, "the missing rank was not taken back", output)
    for part in ("GOING ON WITH 3 OF 4 RANKS", "signal 9", "ALL 4 RANKS ARE BACK"):
        expect(part in output, f"'{part}' is not said", output)
    recovery = [m["timing_s/recovery"] for m in lines("elastic/metrics.jsonl") if "timing_s/recovery" in m]
    expect(len(recovery) == 2 and recovery[0] < 30, f"recoveries: {recovery}", output)
    samples = lines("elastic/samples.jsonl")
    for step in range(1, STEPS + 1):
        expect(sum(s["step"] == step for s in samples) == 16, f"step {step} has not 16 samples", output)
    print(f"steps {fewer[0]} to {fewer[-1]} on three ranks; recoveries {[round(r, 2) for r in recovery]} s")
    return fewer


def resumed(fewer):
    """The same by hand: each part is a run of its own that resumes from the one before."""
    for ranks, last in ((4, fewer[0] - 1), (3, fewer[-1]), (4, STEPS)):
        if last > 0:
            run(*words("parts", ranks=ranks, steps=last, pause=0))
    for step in (fewer[0] - 1, fewer[-1], STEPS):
        expect(step == 0 or state("elastic", step) == state("parts", step),
               f"weights or optimizer state after step {step} are not those of resumed runs")
    same = lambda folder: [(s["step"], s["prompt_ids"], s["response_ids"], s["reward"]) for s in
                           lines(f"{folder}/samples.jsonl")]
    expect(same("elastic") == same("parts"), "samples are not those of resumed runs")


def not_below_the_least():
    process = start(*words("least", ranks=2, steps=500, trainer__fault__min_ranks=2))
    wait_until(process, "a step", lambda: lines("least/metrics.jsonl"))
    absence = Absence("least", 1)
    absence.start()
    output = process.communicate(timeout=60)[0]
    absence.end()
    expect(process.returncode == 2, f"exit code {process.returncode}", output)
    for part in ("rank 1", "replace_timeout", "min_ranks"):
        expect(part in output, f"'{part}' is not named", output)


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    resumed(goes_on_and_grows_back())
    not_below_the_least()


in_temporary_folder(main)
