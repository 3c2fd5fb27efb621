#!/usr/bin/env python3
"""How fast the dashboard shows many long runs, in a headless Chromium: first paint, the first charts, a whole screen of
charts, the longest task of the page, and the bytes that travel. Prints JSON.

    benchmarks/dashboard.py [--build build/release] [--runs 20] [--steps 10000] [--repeats 3]

Standard library only.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

from browser import Browser, find_chromium  # noqa: E402

NAMES = ("critic/score/mean", "critic/score/max", "critic/score/min", "critic/rewards/mean", "critic/advantages/mean", "actor/entropy",
         "actor/kl_loss", "actor/ppo_kl", "actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/grad_norm", "actor/pg_loss", "actor/lr",
         "response_length/mean", "response_length/max", "response_length/clip_ratio", "prompt_length/mean", "perf/throughput",
         "perf/time_per_step", "perf/cpu_memory_used_gb", "perf/total_num_tokens", "timing_s/step", "timing_s/gen", "timing_s/reward",
         "timing_s/update_actor", "rollout_corr/kl", "training/global_step", "training/epoch")
WATCH = """
  window.tasks = [];
  new PerformanceObserver(list => list.getEntries().forEach(e => window.tasks.push([e.startTime, e.duration]))).observe({type: 'longtask', buffered: true});
  const drawn = () => document.querySelectorAll('.uplot').length;
  const look = () => {
    if (drawn() >= 1) window.firstChart ??= performance.now();
    if (drawn() >= 6) window.sixCharts ??= performance.now();
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);"""


def write_runs(folder, runs, steps):
    """As a run writes them; every fourth has the same numbers, so that writing is quick."""
    texts = []
    for seed in range(min(runs, 4)):
        draw = random.Random(seed).random
        texts.append("".join(json.dumps({"step": step, **{name: step / steps + draw() for name in NAMES}}) + "\n"
                             for step in range(1, steps + 1)))
    for number in range(runs):
        os.makedirs(f"{folder}/run-{number:02d}")
        with open(f"{folder}/run-{number:02d}/metrics.jsonl", "w", encoding="utf-8") as file:
            file.write(texts[number % len(texts)])
    return sum(len(texts[number % len(texts)]) for number in range(runs))


def wait_until_read(url, runs, steps):
    """Seconds until the server knows every row."""
    began = time.monotonic()
    while time.monotonic() - began < 120:
        with urllib.request.urlopen(url + "api/runs", timeout=30) as answer:
            known = json.loads(answer.read())["runs"]
        if len(known) == runs and all(run["rows"] == steps for run in known):
            return time.monotonic() - began
        time.sleep(0.02)
    sys.exit("the server did not read the runs")


def visit(chromium, url):
    """One fresh browser: opens the page, scrolls to its end, changes the smoothing, zooms."""
    browser = Browser(chromium)
    try:
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        browser.go(url + "#charts")
        browser.wait("window.sixCharts", "six charts", timeout=60)
        painted = browser.eval("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        sizes = browser.eval("performance.getEntriesByType('resource').map(e => [e.name, e.encodedBodySize])")
        browser.wait("document.querySelectorAll('.uplot').length >= 9", "a screen of charts")
        time.sleep(0.5)
        loading = browser.eval("Math.max(0, ...window.tasks.map(t => t[1]))")
        browser.eval("window.tasks.length = 0; window.scrollTo(0, document.body.scrollHeight)")
        time.sleep(0.5)
        for _ in range(4):
            browser.key("]")
            time.sleep(0.1)
        browser.key("x")
        time.sleep(1)
        browser.key("a")
        time.sleep(1.5)
        return {"first_paint_ms": painted, "first_chart_ms": browser.eval("window.firstChart"),
                "six_charts_ms": browser.eval("window.sixCharts"), "longest_task_loading_ms": loading,
                "longest_task_using_ms": browser.eval("Math.max(0, ...window.tasks.map(t => t[1]))"),
                "page_kb": sum(size for name, size in sizes if "/api/" not in name) / 1024,
                "data_kb": sum(size for name, size in sizes if "/api/" in name) / 1024}
    finally:
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    chromium = find_chromium() or sys.exit("no Chromium here: install it, or set CHROMIUM")
    with tempfile.TemporaryDirectory(prefix="tandem_dashboard_") as folder:
        size = write_runs(folder, arguments.runs, arguments.steps)
        program = ROOT / arguments.build / "bin/tandem"
        process = subprocess.Popen([str(program), "dashboard", folder, "--port", "0"], stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://\S+/", process.stdout.readline()).group()
            read = wait_until_read(url, arguments.runs, arguments.steps)
            visits = [visit(chromium, url) for _ in range(arguments.repeats)]
        finally:
            process.terminate()
            process.wait()
    rounded = [{key: None if value is None else round(value, 1) for key, value in one.items()} for one in visits]
    print(json.dumps({"runs": arguments.runs, "steps": arguments.steps, "files_mb": round(size / 1e6, 1),
                      "read_s": round(read, 2), "visits": rounded}, indent=1))


main()
