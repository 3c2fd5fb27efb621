#!/usr/bin/env python3
"""Every relative link in the tracked Markdown files must lead to a file. --self-test proves it can fail."""
import pathlib
import re
import subprocess
import sys
import tempfile

LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def broken_links(path: pathlib.Path) -> list[str]:
    text = re.sub(r"```.*?```", lambda m: "\n" * m.group().count("\n"), path.read_text(encoding="utf-8"), flags=re.S)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                found.append(f"{path}:{number}: links to {target}, which does not exist")
    return found


def self_test() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.md"
        page.write_text("[a](page.md#top) [b](https://example.org/x)\n```\n[no](code.md)\n```\n[c](missing.md)\n")
        found = broken_links(page)
        assert len(found) == 1 and "page.md:5: links to missing.md" in found[0], found
    print("check_links self-test: ok")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    root = pathlib.Path(__file__).resolve().parent.parent
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=root,
                           capture_output=True, text=True, check=True).stdout.splitlines()
    found = [problem for name in names if (root / name).exists() for problem in broken_links(root / name)]
    print("\n".join(found) if found else f"links: ok in {len(names)} pages")
    sys.exit(bool(found))
