"""Drives a run of several processes: ranks_cli.py PROGRAM. Standard library only; exit code 1 at a surprise."""
import array
import json
import os
import signal
import shutil
import time

from driver import (REWARD, expect, in_temporary_folder, lines, refused, run, settings, start, tensor_files,
                    wait_for_a_step, write)
from tiny_model import read_safetensors, write_model

STEPS = 4


def words(folder, ranks=2, **overrides):
    return settings(folder, steps=overrides.pop("steps", STEPS), trainer__n_gpus_per_node=ranks, trainer__device="cpu",
                    **overrides)


def weights(folder, step=STEPS):
    return tensor_files(f"{folder}/checkpoints/global_step_{step}/actor/huggingface")


def state(folder, step):
    return tensor_files(f"{folder}/checkpoints/global_step_{step}/actor")


def numbers(folder):
    """Every weight of a Hugging Face folder, in the order of the names."""
    tensors = {}
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            tensors.update(read_safetensors(f"{folder}/{name}"))
    return [x for _, (_, _, data) in sorted(tensors.items()) for x in array.array("f", data)]


def distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5


def responses(folder):
    return [(s["prompt_ids"], s["response_ids"]) for s in lines(f"{folder}/samples.jsonl")]


def steady(metrics):
    return [{k: v for k, v in m.items() if not k.startswith(("timing", "perf/", "rollout/"))} for m in metrics]


def children(pid):
    """Of a process: those that run still."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                state, parent = file.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(entry))
    return found


def gone(pids):
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def trace_of_both_ranks():
    """Each rank's phases, passes and collectives on one clock: the ranks are in an exchange at the same time."""
    with open("two/trace_step_2.json", encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    by_rank = [[event for event in events if event["pid"] == rank] for rank in (0, 1)]
    for rank, mine in enumerate(by_rank):
        expect({"gen", "update_actor", "decode", "update_actor micro-batch"} <= {event["name"] for event in mine},
               f"the work of rank {rank}", str({event["name"] for event in mine}))
    exchanges = [[event for event in mine if event["cat"] == "collectives"] for mine in by_rank]
    expect(len(exchanges[0]) > 4 and exchanges[0][0]["args"].keys() == {"bytes_sent", "bytes_received"}, "collectives", str(exchanges[0][:2]))
    for name in {event["name"] for event in exchanges[0]}:
        here, there = ([(e["ts"], e["ts"] + e["dur"]) for e in mine if e["name"] == name] for mine in exchanges)
        expect(len(here) == len(there) and all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(here, there)),
               f"the ranks were in '{name}' together", f"{here}\n{there}")
    spans = [next(e for e in mine if e["name"] == "update_actor") for mine in by_rank]
    expect(abs(spans[0]["ts"] - spans[1]["ts"]) < 1e6, "one clock", str(spans))


def trains_and_resumes():
    run(*words("two", trainer__profile__steps="[2]", trainer__checkpoint__local_freq=3))
    trace_of_both_ranks()
    metrics = lines("two/metrics.jsonl")
    expect([m["training/global_step"] for m in metrics] == list(range(1, STEPS + 1)), "steps are missing", str(metrics))
    expect("actor/rank_imbalance" in metrics[0], "the imbalance is not reported", str(metrics[0]))
    output = run(*words("threads", trainer__runtime="threads"))
    expect("as threads" in output and weights("threads") == weights("two"), "threads as ranks end elsewhere", output)
    expect(steady(lines("threads/metrics.jsonl")) == steady(metrics), "threads as ranks have other metrics", output)
    run(*words("one", ranks=1))
    first = 16  # samples of a step, drawn before anything was learnt
    expect(responses("two")[:first] == responses("one")[:first], "two ranks draw other tokens than one")
    run(*words("hybrid", ranks=4, actor_rollout_ref__actor__fsdp_config__fsdp_size=2, steps=2))
    run(*words("whole", ranks=4, steps=2))
    expect(weights("hybrid", 2) == weights("whole", 2), "four ranks end elsewhere in groups of two")
    tensor = dict(actor_rollout_ref__actor__strategy="megatron", steps=2)
    for tp, ranks in ((2, 2), (2, 4)):
        run(*words(f"tp{tp}of{ranks}", ranks=ranks, **tensor,
                   actor_rollout_ref__actor__megatron__tensor_model_parallel_size=tp,
                   actor_rollout_ref__rollout__tensor_model_parallel_size=tp))
    expect(responses("tp2of2")[:first] == responses("tp2of4")[:first], "more groups of two draw other tokens")
    run(*words("pipeline", **tensor, actor_rollout_ref__actor__megatron__pipeline_model_parallel_size=2))
    expect(responses("pipeline")[:first] == responses("two")[:first], "a pipeline draws other tokens")
    megatron = "actor_rollout_ref__actor__megatron__"
    run(*words("tp2pp2", ranks=4, **tensor, **{
        megatron + "tensor_model_parallel_size": 2, megatron + "pipeline_model_parallel_size": 2,
        "actor_rollout_ref__rollout__tensor_model_parallel_size": 2}))
    expect(responses("tp2pp2")[:first] == responses("tp2of2")[:first], "a pipeline beside it draws other tokens")
    run(*words("pp2fsdp2", ranks=4, **tensor, **{megatron + "pipeline_model_parallel_size": 2}))
    run(*words("shared", steps=2, actor_rollout_ref__actor__ulysses_sequence_parallel_size=2))
    for name in ("pp2fsdp2", "shared"):
        expect(responses(name)[:first] == responses("two")[:first], f"{name} draws other tokens")
    norms = {name: lines(f"{name}/metrics.jsonl")[0]["actor/grad_norm"]
             for name in ("two", "tp2pp2", "pp2fsdp2", "shared")}
    expect(all(abs(norm - norms["two"]) <= 1e-4 * norms["two"] for norm in norms.values()),
           "the first gradient depends on the layout", str(norms))
    ppo = dict(algorithm__adv_estimator="gae", critic__optim__lr=1e-3, steps=2)
    for ranks in (1, 2):  # the critic learns on the leader alone
        run(*words(f"ppo{ranks}", ranks=ranks, **ppo))
    one, two = (lines(f"ppo{ranks}/metrics.jsonl") for ranks in (1, 2))
    for key in ("critic/vf_loss", "critic/vf_explained_var", "critic/values/mean"):
        expect(one[0][key] == two[0][key], f"two ranks' {key} is another", f"{one[0][key]} {two[0][key]}")
    expect(os.path.isdir("ppo2/checkpoints/global_step_2/critic"), "the critic of two ranks is not saved")
    run(*words("cut", steps=2))
    for other in LAYOUTS:
        shutil.copytree("cut", f"cut-{other}")
    run(*words("cut"))
    expect(state("cut", STEPS) == state("two", STEPS), "a resumed run ends with other weights or optimizer state")


LAYOUTS = {  # what a run of two sharded ranks goes on as
    "one": dict(ranks=1),
    "four": dict(ranks=4),
    "tensor": dict(ranks=2, actor_rollout_ref__actor__strategy="megatron",
                   actor_rollout_ref__actor__megatron__tensor_model_parallel_size=2,
                   actor_rollout_ref__rollout__tensor_model_parallel_size=2),
    "pipeline": dict(ranks=2, actor_rollout_ref__actor__strategy="megatron",
                     actor_rollout_ref__actor__megatron__pipeline_model_parallel_size=2),
}


def goes_on_at_any_layout():
    """Each reads the two ranks' checkpoint; after a step more, other sums have rounded the weights otherwise, no more."""
    before, after = (numbers(f"two/checkpoints/global_step_{step}/actor/huggingface") for step in (2, 3))
    for name, layout in LAYOUTS.items():
        folder = f"cut-{name}"
        output = run(*words(folder, steps=3, **layout))
        expect("resuming after step 2" in output, f"{name} does not resume", output)
        expect(responses(folder)[32:48] == responses("two")[32:48], f"{name} draws other tokens from the same weights")
        found = numbers(f"{folder}/checkpoints/global_step_3/actor/huggingface")
        off = distance(found, after) / distance(after, before)
        expect(off < 1e-3, f"{name} ends {off:.2g} of a step's change away from the run that did not move")


def writes_stay_under_their_bound():
    run(*words("paced", steps=3, trainer__save_freq=1, trainer__checkpoint__max_write_mb_per_s=1))
    peaks = [m["perf/checkpoint_peak_gb_per_s"] for m in lines("paced/metrics.jsonl")
             if "perf/checkpoint_peak_gb_per_s" in m]
    expect(peaks and max(peaks) <= 1.3e-3, "the ranks' files together go beyond the bound", str(peaks))


def a_killed_rank_ends_the_run():
    process = start(*words("killed", steps=500, trainer__fault__max_restarts=0))
    wait_for_a_step(process, "killed/metrics.jsonl")
    others = children(process.pid)
    expect(len(others) >= 1, "a run of two ranks is one process")
    rank = next(pid for pid in others if b"--rank" in open(f"/proc/{pid}/cmdline", "rb").read())
    os.kill(rank, signal.SIGKILL)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode not in (0, -6, -11) and "rank 1" in output, "a killed rank is not named", output)
    expect(gone(others), "processes are left behind")


def a_killed_leader_leaves_nobody():
    process = start(*words("beheaded", steps=500))
    wait_for_a_step(process, "beheaded/metrics.jsonl")
    others = [pid for pid in children(process.pid) if b"--rank" in open(f"/proc/{pid}/cmdline", "rb").read()]
    process.kill()
    process.communicate()
    expect(gone(others), "ranks outlive the run")


def an_interrupted_run_is_saved():
    process = start(*words("stopped", steps=500, pause=0.01, trainer__save_freq=100))
    wait_for_a_step(process, "stopped/metrics.jsonl")
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 130, f"after Ctrl-C: exit code {process.returncode}", output)
    last = int(lines("stopped/metrics.jsonl")[-1]["training/global_step"])
    expect(os.path.isdir(f"stopped/checkpoints/global_step_{last}"), "Ctrl-C saved nothing", output)


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    for part in (trains_and_resumes, goes_on_at_any_layout, writes_stay_under_their_bound,
                 a_killed_rank_ends_the_run, a_killed_leader_leaves_nobody,
                 an_interrupted_run_is_saved):
        begin = time.monotonic()
        part()
        print(f"{part.__name__} {time.monotonic() - begin:.1f} s")
    refused("clip_cov in a pipeline",
            words("x", actor_rollout_ref__actor__strategy="megatron",
                  actor_rollout_ref__actor__megatron__pipeline_model_parallel_size=2,
                  actor_rollout_ref__actor__policy_loss__loss_mode="clip_cov"), "policy_loss.loss_mode", "pipeline")
    refused("groups that do not divide", words("x", ranks=3, actor_rollout_ref__actor__fsdp_config__fsdp_size=2),
            "fsdp_size", "data-parallel")


in_temporary_folder(main)
