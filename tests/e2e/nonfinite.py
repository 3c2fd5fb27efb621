"""Rewards so large that gradients overflow: nonfinite.py PROGRAM. Standard library only."""
import os

from driver import expect, in_temporary_folder, lines, run, settings, write
from tiny_model import write_model

# The first step's 16 samples get rewards whose advantages are beyond fp32.
REWARD = """
calls = 0
def compute_score(data_source, solution_str, ground_truth, extra_info):
    global calls
    calls += 1
    return sum(solution_str.encode()) % 7 * (1e300 if calls <= 16 else 1.0)
"""


def words(folder, **overrides):
    return settings(folder, steps=3, algorithm__norm_adv_by_std_in_grpo=False, **overrides)


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    output = run(*words("stopped"), code=2)
    errors = [line for line in output.splitlines() if " error " in line]
    expect(len(errors) == 1 and "the gradient's norm" in errors[0], "one line says why the run ends", output)
    dumps = os.listdir("stopped/dumps")
    expect(dumps == ["step_1_actor_0"], "one dump", str(dumps))
    expect("tandem replay" in output, "the dump's command is named", output)
    report = run("replay", "stopped/dumps/step_1_actor_0")
    expect("step 1 of the run, actor, 8 samples" in report and "<- not finite" in report, "the replay", report)
    expect(len(report.splitlines()) == 10, "a line for each sample", report)
    then, now = (report.split(" then, ")[0].split("loss ")[1], report.split(" then, ")[1].split(" now")[0])
    expect(then.split(" and gradient norm ") == now.split(" and "), "the replay gives other numbers", report)

    output = run(*words("skipped", trainer__nonfinite_update="skip"))
    metrics = lines("skipped/metrics.jsonl")
    expect([m.get("actor/skipped_updates") for m in metrics] == [2, None, None], "two updates are left out", str(metrics))
    expect([m["actor/optimizer_steps"] for m in metrics] == [0, 2, 2], "optimizer steps", str(metrics))
    expect(len(os.listdir("skipped/dumps")) >= 1, "no dump", output)
    for step in range(2, 4):
        expect(all(value == value for value in metrics[step - 1].values()), "a metric is not a number", str(metrics))
    print("gradients that are not finite: ok")


in_temporary_folder(main)
