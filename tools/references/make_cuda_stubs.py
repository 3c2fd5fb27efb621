#!/usr/bin/env python3
"""Writes stubs of the CUDA libraries that `import torch` of the CUDA wheel wants and a CPU machine lacks.

usage: make_cuda_stubs.py SITE_PACKAGES OUT_FOLDER

A stub has the right soname and defines the symbols, with their versions, that torch's libraries leave undefined; each
ends the process when called, which on a machine without a GPU never happens. Only for references and benchmarks.
"""

import collections
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: pathlib.Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", "-W", str(library)))


def dynamic_symbols(library: pathlib.Path, which: str) -> set[tuple[str, str]]:
    """(name, version) pairs; the version is empty where the symbol has none."""
    lines = run("nm", "-D", which, str(library)).splitlines()
    names = (line.split()[-1].replace("@@", "@") for line in lines if not re.match(r"^\s*[wv] ", line))
    return {tuple(name.split("@")) if "@" in name else (name, "") for name in names}


def version_files(library: pathlib.Path) -> dict[str, str]:
    """Which needed library each symbol version is asked from."""
    files, soname = {}, ""
    for key, value in re.findall(r"\b(File|Name): (\S+)", run("readelf", "-V", "-W", str(library)).split(".gnu.version_r")[-1]):
        soname = value if key == "File" else soname
        files[value] = soname
    return files


def loaded_at_import(torch_lib: pathlib.Path) -> list[pathlib.Path]:
    """torch's own libraries that `import torch` loads. Others, such as the one that wants the driver, load on first use of
    a GPU; a stub of the driver would only mislead the CUDA runtime."""
    found, queue = [], ["libtorch_python.so"]
    while queue:
        library = torch_lib / queue.pop()
        if library.exists() and library not in found:
            found.append(library)
            queue += needed(library)
    return sorted(found)


def is_present(soname: str, folders: list[pathlib.Path]) -> bool:
    if any((folder / soname).exists() for folder in folders):
        return True
    try:
        ctypes.CDLL(soname)
        return True
    except OSError:
        return False


def write_stub(soname: str, symbols: set[tuple[str, str]], out: pathlib.Path) -> None:
    by_version = collections.defaultdict(list)
    for name, version in sorted(symbols):
        by_version[version].append(name)
    source = [
        "#include <stdio.h>",
        "#include <stdlib.h>",
        f'static void absent(void) {{ fputs("stub of {soname} called: no CUDA here\\n", stderr); abort(); }}',
    ]
    source += [f'void {name}(void) __attribute__((alias("absent")));' for names in by_version.values() for name in names]
    script = [f"{version} {{ global: {'; '.join(names)}; }};" for version, names in by_version.items() if version]
    with tempfile.TemporaryDirectory() as scratch:
        c_file, map_file = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
        c_file.write_text("\n".join(source) + "\n")
        map_file.write_text("\n".join(script) + "\n")
        versions = [f"-Wl,--version-script={map_file}"] if script else []
        run("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", *versions, "-o", str(out / soname), str(c_file))


def main() -> None:
    site, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    torch_lib = site / "torch" / "lib"
    libraries = loaded_at_import(torch_lib)
    folders = [torch_lib, *site.glob("nvidia/*/lib")]
    defined = set()
    for library in [*libraries, *(f for folder in folders[1:] for f in folder.glob("*.so*"))]:
        defined |= {name for name, _ in dynamic_symbols(library, "--defined-only")}

    wanted = collections.defaultdict(set)
    for library in libraries:
        absent = [soname for soname in needed(library) if not is_present(soname, folders)]
        if not absent:
            continue
        files = version_files(library)
        open_symbols = {s for s in dynamic_symbols(library, "--undefined-only") if s[0] not in defined}
        for soname in absent:
            # A symbol without a version may be in any of the absent libraries, so each defines it: the loader takes one.
            wanted[soname] |= {(n, v) for n, v in open_symbols if (files.get(v) == soname if v else is_cuda_name(n))}
    for soname, symbols in sorted(wanted.items()):
        write_stub(soname, symbols, out)
        print(f"{soname}: {len(symbols)} symbols")


def is_cuda_name(name: str) -> bool:
    return name.startswith(("cu", "nccl", "nv", "__nv"))


if __name__ == "__main__":
    main()
