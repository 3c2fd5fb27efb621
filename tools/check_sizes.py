#!/usr/bin/env python3
"""File sizes in src/: a warning over 400 lines, failure over 800, and the median. --self-test proves it can fail."""
import pathlib
import statistics
import sys
import tempfile

WARN, FAIL = 400, 800


def report(src: pathlib.Path) -> tuple[list[str], bool]:
    files = [p for p in src.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"}]
    sizes = {p.relative_to(src): len(p.read_bytes().splitlines()) for p in files}
    lines = []
    for path, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if size > FAIL:
            lines.append(f"src/{path}: {size} lines; more than {FAIL} is refused: split it by what its parts do")
        elif size > WARN:
            lines.append(f"warning: src/{path}: {size} lines; over {WARN} asks for a split")
    if sizes:
        lines.append(f"file sizes: {len(sizes)} files, median {statistics.median(sizes.values()):g} lines, largest {max(sizes.values())}")
    return lines, any(size > FAIL for size in sizes.values())


def self_test() -> None:
    with tempfile.TemporaryDirectory() as folder:
        src = pathlib.Path(folder)
        for name, size in {"small.cc": 100, "edge.h": FAIL, "other.cu": 50}.items():
            (src / name).write_text("x\n" * size)
        lines, failed = report(src)
        assert not failed and lines[0].startswith("warning: src/edge.h: 800"), lines
        assert "3 files, median 100 lines" in lines[-1], lines
        (src / "edge.h").write_text("x\n" * (FAIL + 1))
        lines, failed = report(src)
        assert failed and "refused" in lines[0], lines
    print("check_sizes self-test: ok")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    lines, failed = report(pathlib.Path(__file__).resolve().parent.parent / "src")
    print("\n".join(lines))
    sys.exit(failed)
