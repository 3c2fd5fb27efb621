"""What a careless or hostile user gives: each ends with one line that says what is wrong, and never with a wrong number:
hostile_input.py PROGRAM. Standard library only."""
import json
import os

from driver import expect, in_temporary_folder, refused, run, settings, write
from tiny_model import write_model

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return (sum(solution_str.encode()) % 7) / 7
def not_a_number(data_source, solution_str, ground_truth, extra_info):
    return float("nan")
def no_accuracy(data_source, solution_str, ground_truth, extra_info):
    return {"score": 1, "acc": float("nan")}
def leaves(data_source, solution_str, ground_truth, extra_info):
    import os
    os._exit(3)
"""


def train(**overrides):
    return settings("run", steps=1, **overrides)


def configurations():
    for name, text, words in (
        ("open list", "data: [1, 2\n", "not valid YAML"), ("tab", "data:\n\tseed: 3\n", "not valid YAML"),
        ("list", "- a\n", "key: value"), ("section", "data: 5\n", "data is a section"),
        ("twice", "data:\n  seed: 2\ndata:\n  seed: 3\n", "stands twice"), ("loop", "a: &x [*x]\n", "too deep"),
        ("unknown", "data:\n  train_batchsize: 2\n", "data.train_batch_size"),
    ):
        refused(f"yaml: {name}", train() + [write("bad.yaml", text)], "bad.yaml:", words)
    for override in ("data.train_batch_size=0", "data.train_batch_size=99999999999999999999", "data.train_batch_size=",
                     "actor_rollout_ref.rollout.n=0", "data.max_response_length=0", "data.train_files=[]",
                     "actor_rollout_ref.actor.optim.lr=nan", "actor_rollout_ref.rollout.max_num_seqs=0"):
        refused(override, train() + [override], override.split("=", maxsplit=1)[0])
    refused("a folder that cannot be made", train(trainer__default_local_dir="/proc/nowhere/checkpoints"),
            "/proc/nowhere")


def rows():
    good = {"data_source": "x", "prompt": [{"role": "user", "content": "hi"}], "reward_model": {"ground_truth": "1"}}
    lacking = lambda key: {k: v for k, v in good.items() if k != key}
    for name, text, *words in (
        ("empty", "", "dataset empty"), ("blank", "\n\n", "dataset empty"),
        ("no prompt", json.dumps(lacking("prompt")), "row 0", "'prompt'"),
        ("no source", json.dumps(lacking("data_source")), "row 0", "data_source"),
        ("no truth", json.dumps(lacking("reward_model")), "row 0", "ground_truth"),
        ("no messages", json.dumps({**good, "prompt": []}), "row 0", "empty list"),
        ("broken", json.dumps(good) + "\n{oops\n", "row 1 (line 2)", "not valid JSON"),
    ):
        refused(f"rows: {name}", train(data__train_files=write("rows.jsonl", text)), "rows.jsonl", *words)
    refused("an empty parquet file", train(data__train_files=write("empty.parquet", "")), "empty.parquet")


def rewards():
    for name, words in (("not_a_number", "returned nan as the score"), ("no_accuracy", 'returned nan as "acc"'),
                        ("leaves", "ended by itself")):
        refused(f"reward {name}", train(reward__custom_reward_function__name=name), words, "sample ", "reward.py")


def a_refused_run_moves_nothing():
    plain = train(trainer__resume_mode="disable")
    run(*plain)
    before = sorted(os.listdir("run"))
    refused("a batch larger than the data", plain + ["data.train_batch_size=500"], "65 prompts", "data.train_batch_size")
    expect(sorted(os.listdir("run")) == before, "a refused run set the earlier one aside", str(os.listdir("run")))


def smaller_commands():
    for ids, words in (([2**32 + 1, 2], "4294967297"), ([-(2**32) + 1, 2], "-4294967295"), ([1, -1], "-1"),
                       ([1.5, 2], "1.5"), ([], "no tokens")):
        refused(f"ids {ids}", ["logprobs", "model", write("ids.jsonl", json.dumps({"input_ids": ids}))], words)
    write("ids.jsonl", '{"input_ids": [1, 2, 3]}\n')
    for temperature in ("0", "-1", "1e-300", "inf", "nan"):
        refused(f"logprobs at {temperature}", ["logprobs", "model", "ids.jsonl", f"--temperature={temperature}"],
                "--temperature")
    ask = ["generate", "model", write("ask.jsonl", '{"prompt": "a"}\n'), "--max-tokens=3"]
    expect(run(*ask) == run(*ask, "--kv-cache-mb=100000000"), "a cache takes no more than is of use")
    expect("--threads" in run(*ask, "--threads=-5", code=2), "threads below none")
    for flag in ("--temperature=nan", "--top-p=0", "--top-k=0", "--min-tokens=9"):
        refused(flag, ask + [flag], flag[2:].split("=", maxsplit=1)[0].replace("-", "_"))
    refused("an empty stop", ask + ["--stop", ""], "stop holds an empty string")


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    configurations()
    rows()
    rewards()
    a_refused_run_moves_nothing()
    smaller_commands()
    print("hostile input: ok")


in_temporary_folder(main)
