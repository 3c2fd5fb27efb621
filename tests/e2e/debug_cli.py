"""Looking into a run that stands: debug_cli.py PROGRAM. Breakpoints hold and release, a stopped rank and the exchange that
waits for it are named. Standard library only."""
import os
import signal
import time

from driver import REWARD, expect, in_temporary_folder, lines, refused, run, settings, start, wait_for_a_step, write
from tiny_model import write_model

HEARTBEAT = 20


def words(folder, ranks, **overrides):
    return settings(folder, steps=100000, trainer__n_gpus_per_node=ranks, trainer__device="cpu", trainer__save_freq=-1,
                    trainer__fault__heartbeat_timeout=HEARTBEAT, **overrides)


def steps(folder):
    return len(lines(f"{folder}/metrics.jsonl"))


def wait_until(what, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < deadline, f"{what} did not come about")
        time.sleep(0.02)


def holds(process, folder, method, rank, *shapes):
    run("debug", folder, "--break", method, "--rank", str(rank))
    wait_until(f"the breakpoint {method} of rank {rank}", lambda: "held since" in run("debug", folder))
    if rank > 0:
        wait_until("a word of who is held", lambda: "held before" in run("debug", folder))
    before = steps(folder)
    time.sleep(0.5)
    output = run("debug", folder)
    expect(steps(folder) == before, f"{method}: steps go on while rank {rank} is held", output)
    for part in (f"breakpoint {method} of rank {rank}: held since", *shapes):
        expect(part in output, f"{method}: '{part}' is not shown", output)
    run("debug", folder, "--release", method)
    wait_until(f"a step after {method} was released", lambda: steps(folder) > before)
    expect("breakpoint" not in run("debug", folder, code=0) and process.poll() is None, "the breakpoint is still there")


def two_ranks():
    process = start(*words("two", 2))
    wait_for_a_step(process, "two/metrics.jsonl")
    wait_until("the list of processes", lambda: os.path.exists("two/workers.json"))
    holds(process, "two", "actor.update", 1, "16 samples: prompt_ids[", "response_ids[")
    holds(process, "two", "actor.generate", 1, "4 prompts: prompt_ids[", "samples[4]")
    holds(process, "two", "reward.score", 0, "16 samples of 4 prompts: prompt_ids[", "response_ids[")
    for wrong, *parts in (("actor.fly", "no such method", "actor.update"), ("reward.score", "rank 0")):
        refused(f"a breakpoint at {wrong}", ["debug", "two", "--break", wrong, "--rank", "1"], *parts)
    refused("a rank that is not there", ["debug", "two", "--break", "actor.update", "--rank", "7"], "--rank 7")
    refused("no breakpoint to release", ["debug", "two", "--release", "all"], "no such breakpoint")

    rank = next(int(line.split("process ")[1].split(":")[0]) for line in run("debug", "two").splitlines()
                if line.startswith("actor rank 1, process"))
    os.kill(rank, signal.SIGSTOP)
    stopped = lambda text: any(line.startswith("actor rank 1, process") and "stopped" in line for line in
                               text.splitlines())
    waits = lambda text: any(line.startswith("controller rank 0, process") and "in the exchange '" in line for line in
                             text.splitlines())
    wait_until("a word of the stopped rank and the exchange", lambda: (lambda text: stopped(text) and waits(text))(
        run("debug", "two")), HEARTBEAT - 5)
    print("\n".join(line for line in run("debug", "two").splitlines() if "process" in line))
    before = steps("two")
    os.kill(rank, signal.SIGCONT)
    wait_until("a step after the rank goes on", lambda: steps("two") > before)
    process.kill()
    process.communicate()


def one_process():
    process = start(*words("one", 1))
    wait_for_a_step(process, "one/metrics.jsonl")
    run("debug", "one", "--break", "actor.update")
    wait_until("the breakpoint of a single process",
               lambda: os.listdir("one/breakpoints") and os.path.getsize("one/breakpoints/actor.update@0") > 0)
    output = run("debug", "one")
    expect("held since" in output and "16 samples of 4 prompts" in output, "what is held is not shown", output)
    before = steps("one")
    run("debug", "one", "--release", "all")
    wait_until("a step after the release", lambda: steps("one") > before)
    process.kill()
    output = process.communicate()[0]
    expect("rank 0 is held before actor.update" in output and "--release" in output, "the run does not say it", output)


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    for part in (one_process, two_ranks):
        begin = time.monotonic()
        part()
        print(f"{part.__name__} {time.monotonic() - begin:.1f} s")


in_temporary_folder(main)
