"""Drives a run of several processes: ranks_cli.py PROGRAM. Standard library only; exit code 1 at a surprise."""
import os
import signal
import time

from driver import REWARD, expect, in_temporary_folder, lines, refused, run, settings, start, wait_for_a_step, write
from tiny_model import write_model

STEPS = 4


def words(folder, ranks=2, **overrides):
    return settings(folder, steps=overrides.pop("steps", STEPS), trainer__n_gpus_per_node=ranks, trainer__device="cpu",
                    **overrides)


def weights(folder, step=STEPS):
    with open(f"{folder}/checkpoints/global_step_{step}/actor/huggingface/model.safetensors", "rb") as file:
        return file.read()


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


def trains_and_resumes():
    run(*words("two"))
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
    ppo = dict(algorithm__adv_estimator="gae", critic__optim__lr=1e-3, steps=2)
    for ranks in (1, 2):  # the critic learns on the leader alone
        run(*words(f"ppo{ranks}", ranks=ranks, **ppo))
    one, two = (lines(f"ppo{ranks}/metrics.jsonl") for ranks in (1, 2))
    for key in ("critic/vf_loss", "critic/vf_explained_var", "critic/values/mean"):
        expect(one[0][key] == two[0][key], f"two ranks' {key} is another", f"{one[0][key]} {two[0][key]}")
    expect(os.path.isdir("ppo2/checkpoints/global_step_2/critic"), "the critic of two ranks is not saved")
    run(*words("cut", steps=2))
    run(*words("cut"))
    expect(weights("cut") == weights("two"), "a resumed run ends with other weights")


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
    for part in (trains_and_resumes, a_killed_rank_ends_the_run, a_killed_leader_leaves_nobody,
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
