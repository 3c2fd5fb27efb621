"""Runs are trained and looked at: dashboard_cli.py PROGRAM. Standard library only; the browser's
part is left out, with a word, where no Chromium is installed."""
import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

import dashboard_pages
from browser import find_chromium
from driver import REWARD, expect, in_temporary_folder, lines, refused, run, settings, start, wait_for_a_step, write
from tiny_model import write_model


class Served:
    """A dashboard in a process of its own, until the end of the block."""

    def __init__(self, *words):
        self.words = words

    def __enter__(self):
        self.process = start("dashboard", *self.words, "--port", "0")
        found = re.search(r"http://\S+/", self.process.stdout.readline())
        expect(found, "the dashboard names its address")
        self.url = found.group()
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=20)
        expect(code == 0, f"Ctrl-C ends the dashboard with exit code {code}")


def get(url, path, **parameters):
    with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(parameters)}", timeout=20) as answer:
        return json.loads(answer.read())


def eventually(question, what):
    deadline = time.monotonic() + 20
    while not question():
        expect(time.monotonic() < deadline, f"never came: {what}")
        time.sleep(0.05)


def recorded_runs():
    """Two runs that differ: one with validation and traces, one with a warning and a failure."""
    run(*settings("runs/first", steps=6, data__val_files="data/test.parquet", trainer__test_freq=2, trainer__profile__steps="[2,4]", trainer__peak_tflops=0.5))
    run(*settings("runs/second", steps=6, actor_rollout_ref__actor__optim__lr=5e-4, trainer__experiment_name="second"))
    process = start(*settings("runs/failed", steps=3, reward__custom_reward_function__name="broken"))
    process.communicate(timeout=60)
    expect(process.returncode == 2, "the run with a broken reward fails")


def log_and_traces():
    log = lines("runs/first/log.jsonl")
    expect([entry.get("event") for entry in log] == ["start", "end"], "a run logs its start and end", str(log))
    failed = lines("runs/failed/log.jsonl")
    expect(failed[-1]["event"] == "failure" and "no verdict today" in failed[-1]["text"], "a failure is logged", str(failed))
    traces = sorted(name for name in os.listdir("runs/first") if name.startswith("trace_"))
    expect(traces == ["trace_step_2.json", "trace_step_4.json"], "the steps asked for are traced", str(traces))
    expect(not [name for name in os.listdir("runs/second") if name.startswith("trace_")], "no trace unasked")
    with open("runs/first/trace_step_2.json", encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] in "Xi"]
    names = {event["name"] for event in events}
    expect({"step", "gen", "update_actor", "testing", "save_checkpoint", "prefill", "decode", "response",
            "update_actor micro-batch"} <= names, "the trace holds phases, passes and micro-batches", str(sorted(names)))
    for step in (m for m in lines("runs/first/metrics.jsonl") if "timing_s/gen" in m):
        for name, work, phase in (("actor", "actor/update_tflop", "update_actor"), ("actor_infer", "rollout/tflop", "gen")):
            share = step[work] / step[f"timing_s/{phase}"] / 0.5
            expect(0 < share < 1 and abs(step[f"perf/mfu/{name}"] - share) < 1e-6 + 1e-3 * share, f"the share of {phase}", str(step))
    timing = next(m for m in lines("runs/first/metrics.jsonl") if m.get("training/global_step") == 2)
    for phase in ("gen", "update_actor", "testing"):
        traced = sum(event["dur"] for event in events if event["name"] == phase) / 1e6
        expect(abs(traced - timing[f"timing_s/{phase}"]) < 1e-3 + 0.01 * traced, f"trace and timing_s agree on {phase}",
               f"{traced} against {timing[f'timing_s/{phase}']}")
    expect(sum(event["name"] == "response" for event in events if event["ts"] < 1e12) >= 16, "each response is in the trace")
    step = next(event for event in events if event["name"] == "step")
    inner = [event for event in events if event["name"] in ("gen", "reward", "update_actor") and event["ph"] == "X"]
    expect(all(step["ts"] <= e["ts"] and e["ts"] + e["dur"] <= step["ts"] + step["dur"] + 1 for e in inner), "phases lie within their step")


def over_http():
    with Served("runs") as served:
        url = served.url
        eventually(lambda: sum(r["rows"] > 0 for r in get(url, "api/runs")["runs"]) == 2, "two runs with rows")
        runs = {r["id"]: r for r in get(url, "api/runs")["runs"]}
        expect(runs["first"]["state"] == "finished" and runs["first"]["traces"] == [2, 4], "the first run", str(runs["first"]))
        expect(runs["failed"]["state"] == "failed" if "failed" in runs else True, "the failed run", str(runs))
        reward = get(url, "api/series", run="first", metric="critic/score/mean")["critic/score/mean"]
        expected = {m["training/global_step"]: m["critic/score/mean"] for m in lines("runs/first/metrics.jsonl") if "critic/score/mean" in m}
        shown = {x: y for x, y in zip(reward["x"], reward["runs"]["first"]["smooth"]) if y is not None}
        expect(shown.keys() == expected.keys() and all(abs(shown[s] - expected[s]) < 1e-6 for s in shown), "the reward's curve", str(reward))
        samples = get(url, "api/samples", run="first", order="best", count=5)
        best = max(s["reward"] for s in lines("runs/first/samples.jsonl"))
        expect(samples["found"] == 96 and abs(samples["items"][0]["reward"] - best) < 1e-6, "samples, best first", str(samples))
        sample = get(url, "api/sample", run="first", index=samples["items"][0]["index"])
        expect("".join(sample["token_texts"]).startswith(sample["response"]), "tokens make up the response", str(sample))
        expect(len(sample["token_texts"]) == len(sample["logprobs"]), "a text for each log-prob", str(sample))
        config = dict(get(url, "api/config", run="second"))
        expect(config["actor_rollout_ref.actor.optim.lr"] == "0.0005", "the configuration", str(config))
        with urllib.request.urlopen(url + "metrics", timeout=20) as answer:
            text = answer.read().decode()
        expect('tandem_step{run="first"} 6\n' in text, "/metrics", text[:500])
        for path in ("api/trace?run=first&step=../../x", "api/config?run=../..", "..%2f..%2fdata/train.parquet"):
            try:
                urllib.request.urlopen(url + path, timeout=20)
                expect(False, f"{path} was answered")
            except urllib.error.HTTPError as error:
                expect(error.code == 404, f"{path}: {error.code}")


def within_a_run():
    """The run serves itself while it trains, and a port that is taken is refused before anything long."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused("a port that is taken", settings("runs/third", trainer__dashboard__port=taken.getsockname()[1]), "trainer.dashboard.port", "taken")
    process = start(*settings("runs/third", steps=500, pause=0.003, trainer__dashboard__port=0))
    url = None
    while url is None:
        line = process.stdout.readline()
        expect(line, "the run names its dashboard's address")
        found = re.search(r"dashboard: (http://\S+/)", line)
        url = found and found.group(1)
    wait_for_a_step(process, "runs/third/metrics.jsonl")
    seen = []

    def two_more():
        seen.append(sum(r["rows"] for r in get(url, "api/runs")["runs"]))
        return seen[-1] >= seen[0] + 2
    eventually(two_more, "steps of the run that serves")
    with urllib.request.urlopen(url + "api/events", timeout=20) as events:
        expect(events.readline() == b"event: change\n", "the run's events")
        process.send_signal(signal.SIGINT)  # ends although a page listens
        process.communicate(timeout=60)
    expect(process.returncode == 130, f"the run ends with exit code {process.returncode}")


FAKE_WANDB = """
import json, os, time
def init(**options): tell(project=options["project"])
def tell(**what):
    with open(os.environ["SEEN"], "a") as file: file.write(json.dumps(what) + "\\n")
def log(metrics, step):
    if os.environ.get("DO") == "crash" and step == 2: os._exit(9)
    tell(step=step, reward=metrics["critic/score/mean"])
def finish(): tell(done=True)
"""


def trackers():
    os.makedirs("python", exist_ok=True)
    write("python/wandb.py", FAKE_WANDB)
    os.environ.update(PYTHONPATH=os.path.abspath("python"), SEEN=os.path.abspath("seen.jsonl"))
    run(*settings("tracked", steps=3, trainer__logger="[console,wandb]", trainer__project_name="p"))
    metrics = lines("tracked/metrics.jsonl")
    expect(len(metrics) == 3, "metrics.jsonl is there without being listed", str(metrics))
    expect(lines("seen.jsonl") == [{"project": "p"}, *({"step": m["step"], "reward": m["critic/score/mean"]} for m in metrics), {"done": True}],
           "the service has heard every step", str(lines("seen.jsonl")))
    os.environ["DO"] = "crash"
    output = run(*settings("crashed", steps=3, trainer__logger="[file,wandb,swanlab]"))
    expect(output.count("wandb gets no more metrics") == 1 and output.count("swanlab is not installed") == 1, "one warning each", output)
    same = [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/"))} for m in lines("crashed/metrics.jsonl")]
    expect(same == [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/"))} for m in metrics], "a crash changed the run")
    for name in ("PYTHONPATH", "DO"):
        del os.environ[name]


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    refused("no folder", ["dashboard", "nowhere"], "nowhere")
    report = []
    parts = [recorded_runs, log_and_traces, over_http, within_a_run, trackers]
    chromium = find_chromium()
    if chromium:
        parts.append(lambda: dashboard_pages.look(chromium, Served, settings))
    else:
        print("no Chromium here: the pages were not looked at (apt-get install chromium, or set CHROMIUM)")
    for part in parts:
        begin = time.monotonic()
        part()
        report.append(f"{getattr(part, '__name__', 'pages')} {time.monotonic() - begin:.1f} s")
    print("; ".join(report) + ": ok")


in_temporary_folder(main)
