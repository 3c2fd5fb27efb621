#!/usr/bin/env python3
"""How well tandem simulate predicts runs of 4 and 8 CPU ranks from runs of 1 and 2: makes a small random model, trains it
a few steps at each number of ranks, calibrates by the first two and compares.

    benchmarks/scaling_cpu.py --program build/release/bin/tandem [--work FOLDER] [--prompts 16,32] [--steps 4]

Ranks beyond the machine's cores share them in time, which the model takes into account (docs/scaling.md). Runs that
another program disturbs are of no use: start it on a quiet machine.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import tiny_model  # noqa: E402

SHAPE = {"HIDDEN": 256, "HEADS": 8, "KV_HEADS": 4, "HEAD_DIM": 32, "FF": 768, "LAYERS": 6}
RESPONSE, SAMPLES = 64, 8
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return (sum(solution_str.encode()) % 101) / 100
"""


def make_model(folder: pathlib.Path) -> None:
    for name, value in SHAPE.items():
        setattr(tiny_model, name, value)
    tiny_model.write_model(str(folder))


def make_data(file: pathlib.Path) -> None:
    with open(file, "w", encoding="utf-8") as out:
        for i in range(512):
            out.write(json.dumps({"prompt": [{"role": "user", "content": f"number {i:08d}"}], "data_source": "x",
                                  "reward_model": {"style": "rule", "ground_truth": "0"}}) + "\n")


def train(arguments, work: pathlib.Path, ranks: int, prompts: int) -> dict:
    run = work / f"ranks{ranks}-prompts{prompts}"
    if not (run / "metrics.jsonl").exists():
        words = [f"actor_rollout_ref.model.path={work / 'model'}", f"data.train_files={work / 'train.jsonl'}",
                 f"data.train_batch_size={prompts}", "data.max_prompt_length=64", f"data.max_response_length={RESPONSE}",
                 f"actor_rollout_ref.rollout.n={SAMPLES}", "actor_rollout_ref.rollout.ignore_eos=True",
                 f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts}", "algorithm.adv_estimator=grpo",
                 f"reward.custom_reward_function.path={work / 'reward.py'}", "reward.num_workers=1",
                 f"trainer.default_local_dir={run / 'checkpoints'}", f"trainer.total_training_steps={arguments.steps}",
                 "trainer.save_freq=-1", "trainer.logger=[file]", "trainer.journal.enable=False", "trainer.device=cpu",
                 f"trainer.n_gpus_per_node={ranks}", f"trainer.num_threads={arguments.threads}",
                 "actor_rollout_ref.rollout.max_num_seqs=1024"]
        subprocess.run([arguments.program, "train", *words], check=True, stdout=subprocess.DEVNULL)
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if len(steps) > 1:
        steps = steps[1:]
    return {"metrics": str(run / "metrics.jsonl"),
            "prompt": statistics.median(s["prompt_length/mean"] for s in steps),
            "generate": statistics.median(s["timing_s/gen"] for s in steps),
            "train": statistics.median(s["timing_s/update_actor"] for s in steps)}


def predict(arguments, work: pathlib.Path, ranks: int, prompts: int, measured: dict, by: list[str]) -> dict:
    words = [arguments.program, "simulate", str(work / "model"), "--device", "cpu", "--devices", str(ranks), "--cores",
             str(arguments.cores), "--threads", str(arguments.threads), "--prompts", str(prompts), "--samples", str(SAMPLES),
             "--prompt-tokens", str(measured["prompt"]), "--response-tokens", str(RESPONSE), "--micro-tokens", "4096",
             "--sequences", "1024", "--json"]
    for file in by:
        words += ["--calibrate", file]
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    line = json.loads(out.splitlines()[-1])
    return {"generate": line["generate_s"], "train": line["train_s"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--work", type=pathlib.Path, default=None)
    parser.add_argument("--prompts", default="16,32")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    work = (arguments.work or pathlib.Path(tempfile.mkdtemp())).resolve()
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "model").exists():
        make_model(work / "model")
    make_data(work / "train.jsonl")
    (work / "reward.py").write_text(REWARD)
    prompts = [int(p) for p in arguments.prompts.split(",")]
    runs = {(r, p): train(arguments, work, r, p) for r in (1, 2, 4, 8) for p in prompts}
    by = [runs[r, p]["metrics"] for r in (1, 2) for p in prompts]
    worst = 0.0
    for (ranks, count), measured in runs.items():
        predicted = predict(arguments, work, ranks, count, measured, by)
        used = ranks in (1, 2)
        line = {"name": "scaling", "ranks": ranks, "prompts": count, "calibrates": used}
        for phase in ("generate", "train"):
            line[f"{phase}_measured_s"] = round(measured[phase], 3)
            line[f"{phase}_predicted_s"] = round(predicted[phase], 3)
            line[f"{phase}_error"] = round(predicted[phase] / measured[phase] - 1, 4)
        both = [sum(x[p] for p in ("generate", "train")) for x in (measured, predicted)]
        line["step_error"] = round(both[1] / both[0] - 1, 4)
        worst = worst if used else max(worst, abs(line["step_error"]))
        print(json.dumps(line), flush=True)
    print(json.dumps({"name": "scaling_check", "worst_step_error_of_4_and_8_ranks": round(worst, 4), "ok": worst <= 0.15}))
    sys.exit(worst > 0.15)


if __name__ == "__main__":
    main()
