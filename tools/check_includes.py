#!/usr/bin/env python3
"""Which folder of src/ may include which: the table of docs/architecture.md, enforced. --self-test proves it can fail."""
import pathlib
import re
import sys
import tempfile

EVERYWHERE = {"base", "observe"}
MAY_INCLUDE = {
    "base": set(),
    "config": set(),
    "observe": set(),
    "text": set(),
    "kernels": set(),
    "memory": set(),
    "parallel": set(),
    "checkpoint": {"parallel"},
    "data": {"text"},
    "model": {"kernels", "memory", "parallel", "checkpoint"},
    "reward": {"data", "text"},
    "rollout": {"model", "kernels", "memory", "parallel", "data", "text"},
    "train": {"model", "kernels", "memory", "parallel", "data"},
    "engine": {"rollout", "train", "model", "memory", "parallel", "checkpoint", "data"},
    "serve": {"engine", "rollout", "model", "kernels", "checkpoint", "data", "text"},
    "control": {"data"},
    "programs": {"control", "engine", "reward", "data"},
    "preflight": {"parallel", "control", "planner"},
    "planner": {"parallel", "control"},
    "dashboard": set(),
}
ANY = {"app"}
TORCH_FREE = {"config", "observe", "text", "control", "data", "reward", "dashboard", "preflight", "planner"}
# Heavy enough to slow every file that sees them: they stay in .cc files.
SOURCE_ONLY = re.compile(r"torch/|ATen/ATen\.h|arrow/|parquet/|yaml-cpp/|CLI/|httplib\.h")
TORCH = re.compile(r"(torch|ATen|c10)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def problems_of(src: pathlib.Path) -> list[str]:
    folders = {d.name for d in src.iterdir() if d.is_dir()}
    found = []
    for folder in sorted(folders - MAY_INCLUDE.keys() - ANY):
        found.append(f"src/{folder}: a folder that the include table does not know; add its row (tools/check_includes.py)")
    for path in sorted(p for p in src.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"}):
        folder = path.relative_to(src).parts[0]
        allowed = MAY_INCLUDE.get(folder, folders) | EVERYWHERE | {"config", folder}
        if folder in {"base", "observe"}:
            allowed = {"base", folder}
        if folder in ANY:
            allowed = folders
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            name = match.group(1)
            where = f"src/{path.relative_to(src)}:{number}: includes {name}"
            target = name.split("/")[0]
            if target in folders and "/" in name and target not in allowed:
                found.append(f"{where}, but {folder} may only include: {', '.join(sorted(allowed))}")
            if folder in TORCH_FREE and TORCH.match(name):
                found.append(f"{where}, but {folder} is torch-free; move the code to a folder that holds tensors")
            if path.suffix in {".cu", ".cuh"} and TORCH.match(name):
                found.append(f"{where}, but .cu files see raw pointers only; check tensors in the .cc beside it")
            if path.suffix == ".h" and folder not in ANY and SOURCE_ONLY.match(name):
                found.append(f"{where}, which is slow to compile; include it in the .cc")
    return found


def self_test() -> None:
    cases = {  # file, include line -> words the message must hold (None: allowed)
        ("rollout/a.cc", '"train/loss.h"'): "rollout may only include",
        ("train/a.cc", '"model/decoder.h"'): None,
        ("data/a.cc", "<ATen/core/Tensor.h>"): "torch-free",
        ("reward/a.h", '"data/types.h"'): None,
        ("control/a.cc", '"engine/engine.h"'): "control may only include",
        ("base/a.cc", '"config/config.h"'): "base may only include",
        ("text/a.cc", '"observe/metrics.h"'): None,
        ("kernels/a.cu", "<c10/util/Half.h>"): "raw pointers",
        ("kernels/a.h", "<ATen/core/Tensor.h>"): None,
        ("model/a.h", "<torch/torch.h>"): "slow to compile",
        ("model/b.cc", "<torch/torch.h>"): None,
        ("app/a.cc", '"programs/grpo.h"'): None,
    }
    for (file, name), expected in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            src = pathlib.Path(folder)
            for known in MAY_INCLUDE.keys() | ANY:
                (src / known).mkdir()
            (src / file).write_text(f"#include {name}\n")
            found = problems_of(src)
            ok = not found if expected is None else len(found) == 1 and expected in found[0] and f"{file}:1" in found[0]
            assert ok, f"{file} with {name}: expected {expected}, got {found}"
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "misc").mkdir()
        assert "does not know" in problems_of(pathlib.Path(folder))[0]
    print("check_includes self-test: ok")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    found = problems_of(pathlib.Path(__file__).resolve().parent.parent / "src")
    print("\n".join(found) if found else "include directions: ok")
    sys.exit(bool(found))
