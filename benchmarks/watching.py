#!/usr/bin/env python3
"""What watching a run costs it: the same training with everything off, and with its dashboard (and a page that looks at
it once a second, as the web page does), TensorBoard files and a trace of every step. Runs alternate; a machine that
others use too does not favour either side, and CPU seconds leave its waiting out.

    benchmarks/watching.py --model FOLDER [--build build/release] [--steps 20] [--pairs 4]

Prints JSON: CPU seconds of the process and wall seconds of a step (medians) either way, the difference in per cent of a
step with its standard error over the pairs, and by how much of it the threads that compute no products took more: the
latter is the steadier figure, but leaves out what the computing thread itself records. Standard library only.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
METRICS = ("critic/score/mean", "critic/rewards/mean", "response_length/mean", "actor/entropy", "actor/ppo_kl", "actor/pg_clipfrac",
           "actor/grad_norm", "actor/pg_loss", "actor/lr", "perf/throughput", "timing_s/step", "timing_s/gen")


def thread_seconds(pid):
    """CPU seconds of each thread, main thread first."""
    seconds = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        seconds[int(task)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


class Page:
    """Asks what the web page asks, once a second, while the run lives."""

    def __init__(self, url):
        self.url, self.stop, self.looks = url, threading.Event(), 0
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.stop.wait(1):
            try:
                with urllib.request.urlopen(self.url + "api/runs", timeout=5) as answer:
                    runs = json.loads(answer.read())["runs"]
                if runs:
                    query = [("run", runs[0]["id"]), ("pieces", "420"), ("smoothing", "0.6")] + [("metric", m) for m in METRICS]
                    urllib.request.urlopen(f"{self.url}api/series?{urllib.parse.urlencode(query)}", timeout=5).read()
                    self.looks += 1
            except OSError:
                return


def train(arguments, folder, watched, environment):
    words = [str(ROOT / arguments.build / "bin/tandem"), "train", f"actor_rollout_ref.model.path={arguments.model}",
             f"data.train_files={folder}/data/train.parquet", "data.val_files=[]", "data.train_batch_size=4", "data.max_prompt_length=64",
             f"data.max_response_length={arguments.tokens}", "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4",
             "algorithm.adv_estimator=grpo", f"trainer.total_training_steps={arguments.steps}", "trainer.total_epochs=1000",
             "trainer.save_freq=-1", f"trainer.default_local_dir={folder}/run-{time.monotonic_ns()}/checkpoints", "trainer.peak_tflops=0",
             f"trainer.num_threads={arguments.threads}"]
    words += ["trainer.dashboard.port=0", "trainer.logger=[console,file,tensorboard]",
              f"trainer.profile.steps=[{','.join(map(str, range(1, arguments.steps + 1)))}]"] if watched else ["trainer.logger=[console,file]"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    page, output, threads = None, [], {}

    def sample():
        while process.poll() is None:
            try:
                threads.update(thread_seconds(process.pid))
            except OSError:
                return
            time.sleep(0.2)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    for line in process.stdout:
        output.append(line)
        found = re.search(r"dashboard: (http://\S+/)", line)
        if found:
            page = Page(found.group(1))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    sampler.join()
    if process.returncode != 0:
        raise SystemExit("".join(output))
    if page:
        page.stop.set()
    metrics = sorted(pathlib.Path(folder).glob("run-*/metrics.jsonl"), key=os.path.getmtime)[-1]
    steps = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    # Those that compute: the main thread and the greatest of the others, of which there are as many as threads but one.
    others = sorted((s for task, s in threads.items() if task != process.pid), reverse=True)
    return {"cpu": usage.ru_utime + usage.ru_stime, "step": statistics.median(s["timing_s/step"] for s in steps),
            "other_threads": sum(others[arguments.threads - 1:]), "looks": page.looks if page else 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    arguments.model = os.path.abspath(arguments.model)
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(arguments.threads)}
    with tempfile.TemporaryDirectory(prefix="tandem_watching_") as folder:
        subprocess.run([str(ROOT / arguments.build / "bin/tandem"), "data", "arithmetic", "--out", f"{folder}/data", "--seed", "3"],
                       check=True, stdout=subprocess.DEVNULL)
        off, on = [], []
        for pair in range(arguments.pairs):
            for watched in (pair % 2 == 0, pair % 2 == 1):  # each side goes first as often
                (on if watched else off).append(train(arguments, folder, watched, environment))
    differences = [(b["cpu"] - a["cpu"]) / a["cpu"] * 100 for a, b in zip(off, on)]
    spread = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    print(json.dumps({"steps": arguments.steps, "pairs": arguments.pairs,
                      "cpu_s_a_step_off": round(statistics.median(r["cpu"] for r in off) / arguments.steps, 4),
                      "cpu_s_a_step_on": round(statistics.median(r["cpu"] for r in on) / arguments.steps, 4),
                      "step_s_off": round(statistics.median(r["step"] for r in off), 4),
                      "step_s_on": round(statistics.median(r["step"] for r in on), 4),
                      "more_cpu_per_cent": round(statistics.mean(differences), 3), "standard_error": spread and round(spread, 3),
                      "more_in_other_threads_per_cent": round(100 * (sum(r["other_threads"] for r in on) - sum(r["other_threads"] for r in off))
                                                              / sum(r["cpu"] for r in off), 3),
                      "looks": sum(r["looks"] for r in on)}, indent=1))


main()
