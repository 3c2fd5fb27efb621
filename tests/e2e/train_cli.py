"""Drives the built program: train_cli.py PROGRAM. Standard library only; exit code 1 at a surprise."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

from driver import (REWARD, expect, in_temporary_folder, interrupted_between_steps, lines, refused, run, settings, start,
                    wait_for_a_step, write)
from tiny_model import read_safetensors, write_model

STEPS = 8


def weights(folder, step=STEPS):
    with open(f"{folder}/checkpoints/global_step_{step}/actor/huggingface/model.safetensors", "rb") as file:
        return file.read()


def steady(metrics):
    """What must not depend on the clock."""
    clock = ("timing", "perf/", "rollout/")  # rollout/ counts what this process drew; the rest was in the journal
    return [{k: v for k, v in m.items() if not k.startswith(clock)} for m in metrics]


def same_run(folder, whole, what):
    expect(weights(folder) == weights(whole), f"{what}: other weights than the uninterrupted run's")
    for name in ("metrics.jsonl", "samples.jsonl"):
        a, b = lines(f"{folder}/{name}"), lines(f"{whole}/{name}")
        expect(steady(a) == steady(b), f"{what}: {name} ({len(a)} lines) differs from the uninterrupted run's")


def uninterrupted():
    begin = time.monotonic()
    run(*settings("whole", pause=0.003))
    took = time.monotonic() - begin
    steps = [m["training/global_step"] for m in lines("whole/metrics.jsonl")]
    expect(steps == list(range(1, STEPS + 1)), "metrics.jsonl lacks steps", str(steps))
    expect(weights("whole", 2) != weights("whole"), "training changed nothing")
    sample = lines("whole/samples.jsonl")[0]
    expect(len(lines("whole/samples.jsonl")) == 16 * STEPS, "samples.jsonl lacks samples", str(sample))
    return took


def killed_runs(took):
    source, kills, campaign = random.Random(3), 0, 0
    while kills < 6:
        folder = f"killed{campaign}"
        campaign += 1
        while True:
            process = start(*settings(folder, pause=0.003))
            try:
                process.communicate(timeout=took * source.uniform(0.2, 0.9) if kills < 6 else 100)
                expect(process.returncode == 0, "a resumed run failed")
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
        same_run(folder, "whole", f"killed and resumed {kills} times")
    return kills


def without_save_freq(words):
    return [word for word in words if not word.startswith("trainer.save_freq=")]


def interrupted_runs_without_save_freq():
    """By default nothing is saved but what an interrupted run has done, and that goes on bit for bit."""
    process = start(*without_save_freq(settings("stopped_default", pause=0.03)))
    wait_for_a_step(process, "stopped_default/metrics.jsonl")
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 130, f"after Ctrl-C: exit code {process.returncode}, expected 130", output)
    last = int(lines("stopped_default/metrics.jsonl")[-1]["training/global_step"])
    saved = os.listdir("stopped_default/checkpoints")
    expect(last < STEPS and f"global_step_{last}" in saved, f"Ctrl-C after step {last} saved {saved}", output)
    run(*settings("stopped_default"))
    same_run("stopped_default", "whole", "interrupted without save_freq")

    words = without_save_freq(settings("stopped_late", trainer__logger="[file,console]"))
    code = interrupted_between_steps(words, "stopped_late/metrics.jsonl")
    expect(code == 130 and "global_step_1" in os.listdir("stopped_late/checkpoints"), f"a late Ctrl-C: exit code {code}")
    run(*settings("stopped_late"))
    same_run("stopped_late", "whole", "interrupted between steps")


def interrupted_run():
    process = start(*settings("stopped", steps=500, pause=0.01, trainer__save_freq=100))
    wait_for_a_step(process, "stopped/metrics.jsonl")
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 130, f"after Ctrl-C: exit code {process.returncode}, expected 130", output)
    last = int(lines("stopped/metrics.jsonl")[-1]["training/global_step"])
    saved = f"stopped/checkpoints/global_step_{last}"
    expect(os.path.isdir(saved), f"Ctrl-C made no {saved}", output)
    expect(last < 400, "Ctrl-C was not heeded")
    run(*settings("stopped", steps=last + 1))
    steps = [m["training/global_step"] for m in lines("stopped/metrics.jsonl")]
    expect(steps == list(range(1, last + 2)), "steps are missing after Ctrl-C and resuming", str(steps))


def broken_checkpoints():
    shutil.copytree("whole", "broken")
    newest = f"broken/checkpoints/global_step_{STEPS}"
    path = f"{newest}/actor/huggingface/model.safetensors"
    os.truncate(path, os.path.getsize(path) - 100)
    output = run(*settings("broken"))
    expect(f"global_step_{STEPS}" in output, "the broken checkpoint is not named", output)
    same_run("broken", "whole", "resumed past a broken checkpoint")
    os.truncate(path, 100)
    refused("explicit broken checkpoint",
            settings("broken", trainer__resume_mode="resume_path", trainer__resume_from_path=newest),
            f"global_step_{STEPS}")


def prompt_lengths():
    """The template adds 19 tokens of bytes: prompts of 33, 34 and 35 where 34 are allowed."""
    rows = [{"data_source": "x", "prompt": [{"role": "user", "content": "abcdefghijklmnop"[:n]}], "extra_info": {},
             "reward_model": {"style": "rule", "ground_truth": "1"}} for n in (14, 15, 16)]
    write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    common = dict(data__train_files="rows.jsonl", data__max_prompt_length=34, data__train_batch_size=1,
                  data__shuffle=False, actor_rollout_ref__actor__ppo_mini_batch_size=1, trainer__total_epochs=1)
    refused("an overlong prompt", settings("x", **common), "rows.jsonl", "row 2", "35", "34")
    whole = [257, *b"user\nabcdefghijklmnop", 258, *b"\n", 257, *b"assistant\n"]
    for how, kept in (("left", whole[1:]), ("right", whole[:-1])):
        run(*settings(how, steps="null", data__truncation=how, **common))
        samples = lines(f"{how}/samples.jsonl")
        expect(len(samples) == 12 and samples[-1]["prompt_ids"] == kept, f"truncation={how}", str(samples[-1]))
    output = run(*settings("filtered", steps="null", data__filter_overlong_prompts=True, **common))
    expect("1 of 3" in output and len(lines("filtered/metrics.jsonl")) == 2, "filtering drops one of three", output)
    refused("all filtered", settings("x", **{**common, "data__max_prompt_length": 20},
                                     data__filter_overlong_prompts=True), "dataset empty")
    refused("bad truncation", settings("x", data__truncation="sideways"), "sideways", "left")


def devices():
    """Where there is no GPU: one line for those who ask for it, and the CPU for those who do not mind."""
    if os.path.exists("/dev/nvidiactl"):
        return
    prompts = write("one.jsonl", '{"prompt": "hello"}\n')
    ids = write("one_ids.jsonl", '{"input_ids": [1, 2, 3]}\n')
    words = {"generate": ["generate", "model", prompts], "logprobs": ["logprobs", "model", ids]}
    for name, command in words.items():
        refused(f"{name} on cuda", command + ["--device", "cuda"], "no NVIDIA driver", "--device cpu")
        expect(run(*command, "--device", "auto", "--threads", "1") == run(*command, "--device", "cpu"),
               f"{name}: auto is the CPU")
    refused("train on cuda", settings("x", trainer__device="cuda"), "no NVIDIA driver", "trainer.device=cpu")
    expect("cpu" in run("generate", "model", prompts, "--device", "tpu", code=2), "an unknown device names the known ones")


def printed_configuration():
    output = run("train", "--print-config")
    expect("train_batch_size:" in output and "\n# What follows from it:" in output, "every key is shown", output)
    again = run("train", "--print-config", write("printed.yaml", output))
    expect(again == output, "what --print-config prints loads to the same", again)
    refused("training without a model", ["train", "data.train_files=data/train.parquet"], "actor_rollout_ref.model.path")


def a_failing_reward_ends_the_sampling():
    """64 responses of up to 300 tokens end one by one; the first that cannot be scored ends the run, not the last."""
    write("counted.py", """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    with open("asked.txt", "a") as out:
        out.write("x")
    raise ValueError("no verdict today")
""")
    refused("a reward that raises while others are sampled",
            settings("x", data__train_batch_size=16, data__max_prompt_length=200, data__max_response_length=300,
                     reward__custom_reward_function__path="counted.py"), "no verdict today", "sample")
    with open("asked.txt", encoding="utf-8") as file:
        asked = len(file.read())
    expect(0 < asked < 48, f"{asked} of 64 responses were drawn to their end")


def errors():
    refused("unknown key", settings("x") + ["actor_rollout_ref.rollout.temprature=1"], "temprature", "temperature")
    refused("no model", settings("x", actor_rollout_ref__model__path="nowhere/at/all"), "nowhere/at/all")
    refused("a reward that raises", settings("x", reward__custom_reward_function__name="broken"),
            "no verdict today", "sample")
    a_failing_reward_ends_the_sampling()
    refused("min_tokens over max", settings("x", actor_rollout_ref__rollout__min_tokens=9), "min_tokens")
    refused("a negative temperature", settings("x", actor_rollout_ref__rollout__temperature=-1), "temperature")


def small_commands():
    expect(run("version").startswith("tandem "), "version")
    with open("ids.jsonl", "w", encoding="utf-8") as out:
        source = random.Random(1)
        for length in (2, 15, 16, 17, 33, 100):
            out.write(json.dumps({"input_ids": [source.randrange(259) for _ in range(length)]}) + "\n")
        chat = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
        out.write(json.dumps({"messages": chat}))
    by_path = [run("logprobs", "model", "ids.jsonl", "--path", path, "--temperature", "0.7", "--threads", threads)
               for path, threads in (("train", "1"), ("train", "2"), ("rollout", "1"))]
    expect(len(set(by_path)) == 1, "the training and the rollout path print different log-probs", "\n".join(by_path))
    expect(by_path[0].count("\n") == 7, "one line for each line", by_path[0])
    refused("an id out of range", ["logprobs", "model", write("bad.jsonl", '{"input_ids": [1, 259]}\n')], "259", "258")

    prompts = write("prompts.jsonl", '{"prompt": "hello"}\n{"messages": [{"role": "user", "content": "1+1?"}]}\n')
    words = ["generate", "model", prompts, "-n", "2", "--max-tokens", "5", "--seed", "4"]
    answers = [json.loads(line) for line in run(*words).splitlines()]
    names = sorted((a["prompt"], a["sample"]) for a in answers)
    expect(names == [(0, 0), (0, 1), (1, 0), (1, 1)], "answers", str(answers))
    expect(all(len(a["logprobs"]) == len(a["response_ids"]) <= 5 for a in answers), "answers' lengths", str(answers))
    expect(answers == [json.loads(line) for line in run(*words, "--threads", "1").splitlines()], "answers differ")
    refused("a message without a role", ["generate", "model", write("bad.jsonl", '{"messages": [{"content": "x"}]}\n')],
            "line 1", "role")
    expect(start("generate", "model", prompts, "-n", "0").wait(timeout=60) != 0, "-n 0 was accepted")

    run("convert", "model", "copy", "--dtype", "fp32")
    expect(read_safetensors("copy/model.safetensors") == read_safetensors("model/model.safetensors"),
           "convert to fp32 changed a tensor")
    run("convert", "copy", "half")
    run("convert", "half", "half_again")
    half = read_safetensors("half/model.safetensors")
    expect(half == read_safetensors("half_again/model.safetensors"), "convert bf16 to bf16 changed a tensor")
    expect(all(dtype == "BF16" for dtype, _, _ in half.values()), "convert's default is bf16")
    refused("convert onto a model", ["convert", "model", "half"], "half")
    told = run("convert", "model", "begun/checkpoints", "--format", "checkpoint").strip().splitlines()[-1]
    expect(told.endswith("begun/checkpoints/global_step_0"), "convert says where the checkpoint is", told)
    run("convert", told, "back", "--dtype", "fp32")
    expect(read_safetensors("back/model.safetensors") == read_safetensors("model/model.safetensors"),
           "a model is another after convert to a checkpoint and back")
    refused("convert onto checkpoints", ["convert", "model", "begun/checkpoints", "--format", "checkpoint"], "begun")
    for folder in ("begun", "plain"):
        output = run(*settings(folder, steps=2))
        expect(("resuming after step 0" in output) == (folder == "begun"), f"{folder} begins elsewhere", output)
    expect(weights("begun", 2) == weights("plain", 2), "a run from a converted checkpoint learns otherwise")


def validation():
    output = run(*settings("checked", steps=2, data__val_files="data/test.parquet", trainer__test_freq=1))
    metrics = lines("checked/metrics.jsonl")
    expect(any(key.startswith("val-core/") for key in metrics[-1]), "no validation metrics", output)


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    report = []
    parts = {"commands": small_commands, "devices": devices, "printed configuration": printed_configuration,
             "errors": errors, "prompt lengths": prompt_lengths, "validation": validation}
    for name, part in parts.items():
        begin = time.monotonic()
        part()
        report.append(f"{name} {time.monotonic() - begin:.1f} s")
    took = uninterrupted()
    begin = time.monotonic()
    kills = killed_runs(took)
    report.append(f"uninterrupted {took:.1f} s, {kills} kills {time.monotonic() - begin:.1f} s")
    begin = time.monotonic()
    interrupted_run()
    interrupted_runs_without_save_freq()
    broken_checkpoints()
    print("; ".join(report) + f"; interrupt and broken checkpoints {time.monotonic() - begin:.1f} s: ok")


in_temporary_folder(main)
