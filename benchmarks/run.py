#!/usr/bin/env python3
"""Times the engine and, with --peers, transformers and TRL beside it on the same work; prints a table of ratios.

    benchmarks/run.py --model FOLDER [--peers] [--shape chat|addition] [--rounds 1] [--threads 2]

The peers run in their own environment (tools/references/setup_peers.sh makes it). Runs alternate, so that a machine
whose speed drifts does not favour either side; the table shows the best round of each.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEW_TOKENS = {"chat": 64, "addition": 4}
PEER_OF = {"rollout": "transformers_generate", "train": "transformers_train", "step": "trl_step"}


def json_lines(command: list[str]) -> list[dict]:
    # Both sides wait passively: spinning threads would make a shared machine's figures meaningless.
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"name"')]  # peers print more than ours


def ours(arguments, what: str) -> list[dict]:
    return json_lines([str(ROOT / "build/release/bin/engine_bench"), "--model", arguments.model, "--shape", arguments.shape,
                       "--new-tokens", str(NEW_TOKENS[arguments.shape]), "--threads", str(arguments.threads),
                       "--what", what])


def peer(arguments, name: str) -> list[dict]:
    return json_lines([str(ROOT / "tools/references/peer_python"), str(ROOT / f"benchmarks/peers/{name}.py"),
                       "--model", arguments.model, "--shape", arguments.shape,
                       "--new-tokens", str(NEW_TOKENS[arguments.shape]), "--threads", str(arguments.threads)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--shape", choices=list(NEW_TOKENS), default="chat")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", choices=list(PEER_OF), help="one comparison alone")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    best: dict[str, dict] = {}
    wanted = [arguments.only] if arguments.only else list(PEER_OF)
    for _ in range(arguments.rounds):
        # The step runs in a process of its own: its peak memory is then the step's.
        lines = (ours(arguments, "parts") if {"rollout", "train"} & set(wanted) else []) + \
                (ours(arguments, "step") if "step" in wanted else [])
        if arguments.peers:
            for name in wanted:
                lines += peer(arguments, PEER_OF[name])
        for line in lines:
            print(json.dumps(line), flush=True)
            if line["name"] not in best or line["seconds"] < best[line["name"]]["seconds"]:
                best[line["name"]] = line

    print(f"\n{'':10}{'seconds':>10}{'peer':>10}{'speed':>9}{'peak GB':>10}{'peer':>8}{'memory':>9}")
    for name in wanted:
        mine, theirs = best[name], best.get(PEER_OF[name])
        row = f"{name:10}{mine['seconds']:10.2f}"
        row += f"{theirs['seconds']:10.2f}{theirs['seconds'] / mine['seconds']:8.2f}x" if theirs else f"{'-':>10}{'-':>9}"
        row += f"{mine['peak_rss_gb']:10.2f}"
        row += f"{theirs['peak_rss_gb']:8.2f}{mine['peak_rss_gb'] / theirs['peak_rss_gb']:8.2f}x" if theirs else f"{'-':>8}{'-':>9}"
        print(row)


if __name__ == "__main__":
    sys.exit(main())
