"""What the scripts that drive the built program share: x.py PROGRAM ... Standard library only."""
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
REWARD = """
import os, time
def compute_score(data_source, solution_str, ground_truth, extra_info, pause=0.0):
    time.sleep(pause)
    return {"score": (sum(solution_str.encode()) % 7) / 7, "odd": len(solution_str) % 2}
def broken(data_source, solution_str, ground_truth, extra_info, pause=0.0):
    raise ValueError("no verdict today")
"""


def fail(what, text=""):
    print(f"FAILED: {what}\n{text}")
    sys.exit(1)


def expect(condition, what, text=""):
    if not condition:
        fail(what, text)


def start(*words):
    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    return subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def wait_for_a_step(process, metrics):
    deadline = time.monotonic() + 60
    while len(lines(metrics)) < 1:
        expect(process.poll() is None and time.monotonic() < deadline, "the run to interrupt did not get going")
        time.sleep(0.02)


def interrupted_between_steps(words, metrics):
    """Ctrl-C when a step is in `metrics` and the run has last asked for signals before: what it prints next waits for a
    full pipe until the signal is there. Returns the exit code."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, 1031, 4096)  # F_SETPIPE_SZ
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"\n" * 512)
    except BlockingIOError:
        os.set_blocking(writing, True)
    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    process = subprocess.Popen([PROGRAM, *words], stdout=writing, stderr=subprocess.PIPE, text=True, env=env)
    os.close(writing)
    wait_for_a_step(process, metrics)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    while "ending after this step" not in process.stderr.readline():
        expect(process.poll() is None, "Ctrl-C went unheard")
    time.sleep(0.1)
    with open(reading, "rb") as out:
        out.read()
    process.communicate(timeout=60)
    return process.returncode


def run(*words, code=0):
    process = start(*words)
    output = process.communicate(timeout=100)[0]
    expect(process.returncode == code, f"{' '.join(words)}: exit code {process.returncode}, expected {code}", output)
    return output


def refused(name, words, *parts):
    """The command fails with one line that names `parts`."""
    process = start(*words)
    output = process.communicate(timeout=100)[0]
    expect(process.returncode not in (0, -6, -11), f"{name}: exit code {process.returncode}", output)
    for part in parts:
        expect(part in output, f"{name}: '{part}' is not named", output)
    errors = [line for line in output.splitlines() if "error" in line.lower()]
    expect(len(errors) == 1, f"{name}: expected one line of error", output)


def settings(folder, steps=8, pause=0.0, **overrides):
    values = {
        "actor_rollout_ref.model.path": "model",
        "data.train_files": "data/train.parquet",
        "data.val_files": "[]",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 256,
        "data.max_response_length": 8,
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
        "actor_rollout_ref.actor.optim.lr": 1e-3,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "algorithm.adv_estimator": "grpo",
        "reward.custom_reward_function.path": "reward.py",
        "reward.num_workers": 1,
        "trainer.default_local_dir": f"{folder}/checkpoints",
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": 1000,
        "trainer.save_freq": 2,
        "trainer.logger": "[file]",
    }
    if pause > 0:
        values["reward.custom_reward_function.reward_kwargs.pause"] = pause
    values.update({key.replace("__", "."): value for key, value in overrides.items()})
    return ["train"] + [f"{key}={value}" for key, value in values.items()]


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def tensor_files(folder):
    """The bytes of every safetensors file below, by name: of a run of several ranks several."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".safetensors"):
                with open(os.path.join(where, name), "rb") as file:
                    found[os.path.relpath(os.path.join(where, name), folder)] = file.read()
    expect(found, f"{folder} holds no tensors")
    return found


def write(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def in_temporary_folder(main):
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        try:
            main()
        finally:
            os.chdir("/")
