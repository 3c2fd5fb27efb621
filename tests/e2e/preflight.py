"""tandem preflight, simulate and plan from outside: preflight.py PROGRAM. Standard library only."""
import json
import os
import subprocess
import sys

from driver import PROGRAM, REWARD, expect, in_temporary_folder, lines, refused, run, settings, write
from tiny_model import write_model

NO_STORAGE = ["trainer.preflight.storage_test_mb=1"]


def changed(words, *others):
    """A key may be given once."""
    keys = {word.split("=")[0] for word in others}
    return [word for word in words if word.split("=")[0] not in keys] + list(others)


def preflight(words, code):
    done = subprocess.run([PROGRAM, "preflight", *words, "--json"], stdout=subprocess.PIPE, text=True)
    expect(done.returncode == code, f"preflight: exit code {done.returncode}, expected {code}", done.stdout)
    return json.loads(done.stdout)


def verdicts(report):
    return {check["check"]: check["verdict"] for check in report["checks"]}


def checks_of_a_good_run(words):
    report = preflight(words, 0)
    found = verdicts(report)
    for check in ("keys", "model", "data", "memory", "disk", "storage", "clock", "topology", "network", "ports", "reward",
                  "versions"):
        expect(found.get(check) in ("pass", "warn"), f"check {check}: {found.get(check)}", json.dumps(report, indent=1))
    sizes = next(c for c in report["checks"] if c["check"] == "keys")["details"]
    expect(any("16 = 4 prompts x 4" in line for line in sizes), "derived sizes are not shown", str(sizes))
    text = run("preflight", *words)
    expect("checks," in text and "-> " not in text.splitlines()[-1], "no closing line", text)
    return report


def failing_checks(words):
    expect(verdicts(preflight(changed(words, "data.nonsense=1"), 1))["keys"] == "fail", "an unknown key passed")
    expect(verdicts(preflight(changed(words, "actor_rollout_ref.model.path=absent"), 1))["model"] == "fail", "no model passed")
    expect(verdicts(preflight(changed(words, "data.train_files=absent.parquet"), 1))["data"] == "fail", "no data passed")
    write("broken.py", "import no_such_module\n")
    broken = preflight(changed(words, "reward.custom_reward_function.path=broken.py"), 1)
    expect(verdicts(broken)["reward"] == "fail", "a reward file that cannot be imported passed")
    floor = preflight(changed(words, "trainer.preflight.min_storage_gb_per_s=100000"), 1)
    expect(verdicts(floor)["storage"] == "fail", "a floor that no disk reaches was reached")
    nodes = preflight([*words, "--nodes", "2"], 1)
    expect(verdicts(nodes)["storage"] == "fail", "a local disk passed for two machines")


def machines_are_compared(words, report):
    write("other.json", json.dumps(report))
    same = preflight([*words, "--against", "other.json"], 0)
    expect(verdicts(same)["versions"] == "pass", "a machine differs from itself")
    expect(same["node"]["versions_hash"] == report["node"]["versions_hash"], "the hash of versions moved")
    report["node"]["versions"][1][1] = "1.0.0"
    write("other.json", json.dumps(report))
    expect(verdicts(preflight([*words, "--against", "other.json"], 1))["versions"] == "fail", "other versions passed")


def runs_check_themselves(words):
    too_much = ["data.train_batch_size=1000000", "actor_rollout_ref.rollout.n=64",
                "actor_rollout_ref.rollout.kv_cache_memory_mb=100000000"]
    refused("a cache beyond any machine", ["train", *changed(words, *too_much)], "memory:", "trainer.preflight.enable=false")
    run("train", *words)  # and lets a good run be


def plans():
    text = run("simulate", "model", "--devices", "64", "--scale", "64,256")
    expect("A prediction, not a measurement" in text and "assumed" in text, "simulate does not say what it is", text)
    rows = [json.loads(line) for line in
            run("simulate", "model", "--device", "cpu", "--cores", "2", "--scale", "1,2", "--devices", "1", "--prompts", "4",
                "--calibrate", "run/metrics.jsonl", "--json").splitlines() if line.startswith("{")]
    expect([row["devices"] for row in rows] == [1, 2] and rows[0]["step_s"] > 0, "no rows", str(rows))
    text = run("plan", "model", "--devices", "8", "--top", "2")
    expect("1. " in text and "Why the first of" in text, "plan gives no reasons", text)
    refused("a network that is not known", ["simulate", "model", "--network", "pigeon"], "pigeon", "ib")
    refused("a file of something else", ["simulate", "model", "--calibrate", "reward.py"], "reward.py", "metrics.jsonl")


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data")
    words = [*settings("run", steps=2)[1:], *NO_STORAGE]
    report = checks_of_a_good_run(words)
    failing_checks(words)
    machines_are_compared(words, report)
    runs_check_themselves(words)
    expect(len(lines("run/metrics.jsonl")) == 2, "the run made no steps")
    plans()
    print("preflight: ok")


if __name__ == "__main__":
    os.environ.setdefault("TANDEM_LOG", "info")
    in_temporary_folder(main)
    sys.exit(0)
