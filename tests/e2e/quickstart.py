"""`tandem quickstart` from end to end on a tiny model: quickstart.py PROGRAM. Standard library only."""
import json
import os

from driver import REWARD, expect, in_temporary_folder, lines, refused, run, write
from tiny_model import read_safetensors, write_model

# A token is a byte here, so that prompts are longer than with a real tokenizer.
SHORT = ["data.max_prompt_length=480", "data.max_response_length=4", "trainer.total_training_steps=3",
         "trainer.test_freq=3", "trainer.save_freq=3", "data.train_batch_size=2", "actor_rollout_ref.rollout.n=2",
         "actor_rollout_ref.actor.ppo_mini_batch_size=2", "data.val_max_samples=4"]


def row(output, name):
    """The value beside a name in the table at the end."""
    found = [line for line in output.splitlines() if line.startswith(name)]
    expect(len(found) == 1, f"quickstart: one row '{name}' in the table", output)
    return found[0][len(name) :].strip()


def check_run(output, folder, source, steps=3):
    expect(" -> " in row(output, "reward, first"), "quickstart: reward before and after", output)
    expect(row(output, "steps done") == str(steps), "quickstart: the steps done", output)
    expect(" -> " in row(output, f"val-core/{source}/"), "quickstart: held-out accuracy before and after", output)
    for phase in ("gen", "update_actor", "reward"):
        expect(float(row(output, f"seconds in {phase} ")) >= 0, f"quickstart: seconds in {phase}", output)
    expect("reward by step" in output, "quickstart: a curve", output)
    expect(row(output, "run folder") == folder, "quickstart: where the run lies", output)
    last = f"{folder}/checkpoints/global_step_{steps}"
    expect(row(output, "last checkpoint") == last, "quickstart: the last checkpoint", output)
    for name in ("config.yaml", "metrics.jsonl", "samples.jsonl", "tensorboard", "checkpoints", "data/train.parquet",
                 "data/test.parquet"):
        expect(os.path.exists(f"{folder}/{name}"), f"quickstart: no {name} in the run folder", output)
    metrics = lines(f"{folder}/metrics.jsonl")
    done = [m["training/global_step"] for m in metrics if "training/global_step" in m]
    expect(done == list(range(1, steps + 1)), "quickstart: a line of metrics for each step", str(done))
    expect(len(lines(f"{folder}/samples.jsonl")) == steps * 4, "quickstart: two prompts x two samples a step")
    events = os.listdir(f"{folder}/tensorboard")
    expect(len(events) == 1 and os.path.getsize(f"{folder}/tensorboard/{events[0]}") > 0, "quickstart: events")
    command = next(line for line in output.splitlines() if line.startswith("talk to it:"))
    told = command.split()[-1]
    expect(told == f"{last}/actor/huggingface", "quickstart: how to talk to the model", output)
    answer = json.loads(run("generate", told, "ask.jsonl", "--max-tokens", "3"))
    expect(len(answer["response_ids"]) <= 3, "the trained model answers", str(answer))


def arithmetic():
    # A random model gets no sum right: another reward, of which each sample gets its own.
    reward = ["reward.rule=null", "reward.custom_reward_function.path=reward.py", "actor_rollout_ref.actor.optim.lr=1e-3"]
    words = ["quickstart", "--model", "model", "--out", "runs", "--seed", "5", *SHORT, *reward]
    check_run(run(*words), "runs/quickstart-arithmetic", "tandem/arithmetic")
    name = "checkpoints/global_step_3/actor/huggingface/model.safetensors"
    trained = read_safetensors(f"runs/quickstart-arithmetic/{name}")
    expect(trained.keys() == read_safetensors("model/model.safetensors").keys(), "quickstart: other tensors")
    expect(trained != read_safetensors("model/model.safetensors"), "quickstart trained nothing")
    first = lines("runs/quickstart-arithmetic/samples.jsonl")
    # Once more starts over, sets the earlier run aside, and draws the same.
    check_run(run(*words), "runs/quickstart-arithmetic", "tandem/arithmetic")
    again = lines("runs/quickstart-arithmetic/samples.jsonl")
    expect(first == again, "quickstart twice with one seed gives the same samples")


def gsm8k():
    row_of = lambda i: {"question": f"What is {i} + {i}?", "answer": f"Add {i} and {i}.\n#### {2 * i}"}
    write("sums.jsonl", "".join(json.dumps(row_of(i)) + "\n" for i in range(20)))
    output = run("quickstart", "--model", "model", "--task", "gsm8k", "sums.jsonl", *SHORT)
    check_run(output, "runs/quickstart-gsm8k", "openai/gsm8k")


def errors():
    refused("no data for gsm8k", ["quickstart", "--model", "model", "--task", "gsm8k"], "FILE.jsonl")
    write("few.jsonl", '{"question": "1+1?", "answer": "#### 2"}\n' * 3)
    refused("too few rows", ["quickstart", "--model", "model", "--task", "gsm8k", "few.jsonl"], "few.jsonl", "too few")
    refused("no such data", ["quickstart", "--model", "model", "--task", "gsm8k", "absent.jsonl"], "absent.jsonl")
    refused("no such model", ["quickstart", "--model", "absent"], "absent")
    refused("an unknown key", ["quickstart", "--model", "model", "trainer.total_training_stpes=3"],
            "trainer.total_training_steps")


def main():
    write_model("model")
    write("reward.py", REWARD)
    write("ask.jsonl", '{"prompt": "1+1="}\n')
    arithmetic()
    gsm8k()
    errors()
    print("quickstart: ok")


in_temporary_folder(main)
