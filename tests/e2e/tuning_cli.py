"""tandem sft and tandem reward-model on a tiny model: tuning_cli.py PROGRAM. Standard library only."""
import glob
import json
import math
import os
import random

from driver import expect, in_temporary_folder, interrupted_between_steps, lines, run
from tiny_model import read_safetensors, write_model

WORDS = ["red", "green", "blue", "one", "two", "three"]


def refused(name, words, *parts):
    output = run(*words, code=2)
    for part in parts:
        expect(part in output, f"{name}: '{part}' is not named", output)
    errors = [line for line in output.splitlines() if "error" in line.lower()]
    expect(len(errors) == 1, f"{name}: expected one line of error", output)


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def settings(command, folder, steps, *more):
    files = ["data.train_files=chats.jsonl", "data.val_files=chats_val.jsonl"] if command == "sft" else [
        "data.train_files=pairs.jsonl", "data.val_files=pairs_val.jsonl"]
    return [command, *files, "model.path=model", "data.train_batch_size=8", "data.max_length=200", "optim.lr=3e-3",
            "optim.lr_scheduler_type=cosine", "optim.lr_warmup_steps=1", f"trainer.default_local_dir={folder}/checkpoints",
            f"trainer.total_training_steps={steps}", "trainer.save_freq=2", "trainer.logger=[file]",
            "data.max_token_len_per_gpu=300", *more]


def saved_files(folder, step):
    root = f"{folder}/checkpoints/global_step_{step}"
    files = {}
    for path in sorted(glob.glob(f"{root}/**", recursive=True)):
        if os.path.isfile(path) and not path.endswith("manifest.json"):
            with open(path, "rb") as file:
                files[os.path.relpath(path, root)] = file.read()
    return files


def steady(metrics):
    return [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/"))} for m in metrics]


def resumed(command, steps):
    """A run that is stopped after every second step and one that is not leave the same files and metrics. The rate's
    schedule is that of the whole run in both."""
    constant = ["optim.lr_scheduler_type=constant", "optim.lr_warmup_steps=0"]
    run(*settings(command, f"{command}-whole", steps, *constant))
    for part in range(2, steps + 1, 2):
        run(*settings(command, f"{command}-parts", part, "trainer.test_freq=2", *constant))
    whole, parts = saved_files(f"{command}-whole", steps), saved_files(f"{command}-parts", steps)
    different = [path for path in whole.keys() | parts.keys() if whole.get(path) != parts.get(path)]
    expect(not different and len(whole) >= 6, f"{command}: after restarts these files differ: {sorted(different)}",
           str(sorted(whole)))
    a, b = (steady(lines(f"{command}-{name}/metrics.jsonl")) for name in ("whole", "parts"))
    without = lambda metrics: [{k: v for k, v in m.items() if not k.startswith("val/")} for m in metrics]
    expect(without(a) == without(b) and len(a) == steps, f"{command}: metrics differ after restarts", f"{a}\n{b}")
    expect(a[-1] == b[-1], f"{command}: the last step's validation differs", f"{a[-1]}\n{b[-1]}")
    for step in a:
        expect(all(math.isfinite(v) for v in step.values() if isinstance(v, float)), f"{command}: not finite", str(step))


def chat(user, reply):
    return [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]


def validation_loss():
    """With a rate of 0 the loss is the mean of what `tandem logprobs` says of the assistant's tokens: its bytes and the
    end of its turn, for this tokenizer of bytes."""
    rows = [{"messages": chat("hi", "red") + chat("and?", "blue one")}, {"prompt": "colour", "response": "green"}]
    write_rows("few.jsonl", rows)
    write_rows("few_messages.jsonl", [rows[0], {"messages": chat("colour", "green")}])
    run("sft", "data.train_files=few.jsonl", "data.val_files=few.jsonl", "model.path=model", "data.train_batch_size=2",
        "optim.lr=0", "trainer.total_epochs=1", "trainer.default_local_dir=few", "trainer.logger=[file]")
    got = lines("few/metrics.jsonl")[0]
    wanted, count = 0, 0
    for row, found in zip(lines("few_messages.jsonl"), run("logprobs", "model", "few_messages.jsonl").splitlines()):
        logprobs, at = json.loads(found)["logprobs"], 0
        for message in row["messages"]:
            header = 1 + len(message["role"]) + 1
            length = len(message["content"]) + 1
            if message["role"] == "assistant":
                wanted -= sum(logprobs[at + header - 1 : at + header - 1 + length])
                count += length
            at += header + length + 1
    for key in ("train/loss", "val/loss"):
        expect(abs(got[key] - wanted / count) < 1e-5, f"{key} is {got[key]}, expected {wanted / count}")
    expect(got["train/global_tokens"] == count, "tokens learnt", str(got))


def learns(command, key, better):
    run(*settings(command, f"{command}-long", 60, "trainer.total_epochs=100", "trainer.test_freq=60",
                  "trainer.save_freq=-1"))
    metrics = lines(f"{command}-long/metrics.jsonl")
    expect(better(metrics), f"{command}: {key} at the end is {metrics[-1][key]}", str(metrics[-1]))
    return f"{key} {metrics[-1][key]:.3f}"


def plug_in():
    """The reward model scores a training run."""
    model = "reward-model-long/checkpoints/global_step_60/huggingface"
    names = read_safetensors(f"{model}/model.safetensors")
    expect("score.weight" in names and "lm_head.weight" not in names, "the reward model's tensors", str(sorted(names)))
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    words = ["train", "actor_rollout_ref.model.path=model", "data.train_files=data/train.parquet", "data.val_files=[]",
             "data.train_batch_size=4", "data.max_prompt_length=256", "data.max_response_length=8",
             "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4",
             "algorithm.adv_estimator=grpo", "trainer.total_training_steps=2", "trainer.total_epochs=100",
             "trainer.logger=[file]", "trainer.save_freq=-1"]
    reward = ["reward.reward_model.enable=True", "reward.reward_model.type=model"]
    run(*words, *reward, f"reward.reward_model.model_path={model}", "trainer.default_local_dir=scored")
    metrics = lines("scored/metrics.jsonl")
    expect(len(metrics) == 2 and all(m["critic/score/max"] > m["critic/score/min"] for m in metrics),
           "scores of the reward model", str(metrics))
    refused("a policy as reward model", [*words, *reward, "reward.reward_model.model_path=model",
                                         "trainer.default_local_dir=x"], "score.weight", "reward-model")
    refused("no model named", [*words, *reward, "trainer.default_local_dir=x"], "model_path")


def errors():
    refused("an unknown key", settings("sft", "x", 1, "optim.weight_dekay=1"), "optim.weight_dekay", "optim.weight_decay")
    refused("no model", settings("sft", "x", 1, "model.path=nowhere/at/all"), "nowhere/at/all", "model.path")
    refused("no data", ["sft", "model.path=model"], "data.train_files")
    refused("a batch over the data", settings("sft", "x", 1, "data.train_batch_size=1000"), "data.train_batch_size")
    refused("an overlong row", settings("sft", "x", 1, "data.max_length=20"), "chats.jsonl", "row 0", "data.max_length")
    refused("chats for pairs", settings("reward-model", "x", 1, "data.train_files=chats.jsonl"), "chats.jsonl", "row 0")
    refused("other data on resuming", settings("sft", "sft-whole", 5, "data.train_files=chats_val.jsonl"), "global_step")
    for other in ("data.seed=7", "trainer.seed=7", "data.shuffle=False"):
        refused(f"{other} on resuming", settings("sft", "sft-whole", 5, other), "global_step_4", "seed", "shuffling")
    refused("a reward model's adapters", settings("reward-model", "x", 1, "model.lora_rank=8"), "model.lora_rank")
    refused("no such projection", settings("sft", "x", 1, "model.lora_rank=8", "model.target_modules=[qproj]"),
            "model.target_modules", "qproj", "q_proj")
    refused("no such adapter", settings("sft", "x", 1, "model.lora_adapter_path=nowhere"),
            "model.lora_adapter_path", "nowhere", "adapter_config.json")
    output = run("sft", "model.partial_pretrain=model", "data.train_files=a.jsonl", "model.strategy=fsdp",
                 "ulysses_sequence_parallel_size=1", "+data.prompt_key=question", "--print-config")
    for command in ("sft", "reward-model"):
        expect("train_batch_size:" in run(command, "--print-config"), f"{command} --print-config without model and data")
    expect("path: model" in output and "model.strategy" in output and "question" in output, "verl's older keys", output)


def interrupted():
    """A signal that comes after a step's own look for one."""
    words = settings("sft", "sft-stopped", 4, "trainer.save_freq=-1", "trainer.logger=[file,console]",
                     "optim.lr_scheduler_type=constant", "optim.lr_warmup_steps=0")
    code = interrupted_between_steps(words, "sft-stopped/metrics.jsonl")
    saved = os.listdir("sft-stopped/checkpoints")
    expect(code == 130 and "global_step_1" in saved, f"interrupted between steps: exit code {code}, saved {saved}")
    run(*words)
    weights = "huggingface/model.safetensors"
    expect(saved_files("sft-stopped", 4)[weights] == saved_files("sft-whole", 4)[weights], "resumed to other weights")


def main():
    write_model("model")
    source = random.Random(2)
    word = lambda: source.choice(WORDS)
    write_rows("chats.jsonl", [{"messages": chat(f"say {w}", f"{w} it is")} for w in (word() for _ in range(64))])
    write_rows("chats_val.jsonl", [{"messages": chat(f"say {w}", f"{w} it is")} for w in WORDS * 2])
    # The better reply says yes, the worse one no, in one of three places.
    def pair():
        at, rest = source.randrange(3), [word(), word()]
        place = lambda w: " ".join(rest[:at] + [w] + rest[at:])
        return {"prompt": [{"role": "user", "content": word()}], "chosen": place("yes"), "rejected": place("no")}
    write_rows("pairs.jsonl", [pair() for _ in range(64)])
    write_rows("pairs_val.jsonl", [pair() for _ in range(50)])
    validation_loss()
    for command in ("sft", "reward-model"):
        resumed(command, 4)
    interrupted()
    report = [learns("sft", "val/loss", lambda m: m[-1]["val/loss"] < 0.5 * m[0]["train/loss"]),
              learns("reward-model", "val/accuracy", lambda m: m[-1]["val/accuracy"] >= 0.8)]
    run("logprobs", "sft-long/checkpoints/global_step_60/huggingface", "few_messages.jsonl")
    plug_in()
    errors()
    print(f"tuning: {', '.join(report)}: ok")


in_temporary_folder(main)
