"""Makes PyTorch load without CUDA: writes empty libraries in the place of NVIDIA's. ``python scripts/cuda_stand_ins.py FOLDER``.

The index that everybody has offers one wheel of PyTorch for Linux. It is linked to 14 libraries of 4 GB that only a GPU needs,
and is not imported without them. Each stand-in has the name and the versions that PyTorch asks for. Its functions answer with
"error 100", which is cudaErrorNoDevice of the CUDA Runtime API, so that PyTorch finds no device and runs on the CPU. Only tests
use them: put FOLDER into ``LD_LIBRARY_PATH``. It needs gcc and readelf. Where PyTorch loads as it is, nothing is written.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

_LIBRARY = re.compile(r"lib(cu|nv|nccl)[\w.-]+")
_FUNCTION = re.compile(r"(_{0,2}(cu|nv|nccl|pnccl))\w+")
_TEXT = re.compile(r"(cuda|cudnn|cusparse|nccl|nvrtc)GetError(String|Name)|ncclGetLastError")  # they return a text
_NO_DEVICE = 100  # cudaErrorNoDevice, CUDA Runtime API


class Wanted:
    """The symbols that PyTorch's own libraries need from the missing ones."""

    def __init__(self, package: Path) -> None:
        self.libraries: set[str] = set()
        self.versions: dict[str, set[str]] = defaultdict(set)  # by library
        self.functions: dict[tuple[str, str], set[str]] = defaultdict(set)  # by library and version
        self.loose: set[str] = set()  # functions without a version, for which the loader looks in every library
        readers = [*package.glob("lib/*.so*"), *package.glob("_C*.so")]
        for path in readers:
            asked = re.findall(r"\(NEEDED\).*\[(.+)\]", read(path, "-d"))
            self.libraries |= {name for name in asked if _LIBRARY.fullmatch(name)}
            self._add_functions(path, self._add_versions(path))
        self.libraries -= {path.name for path in readers}
        self.loose -= {name for names in self.functions.values() for name in names}

    def _add_versions(self, path: Path) -> dict[str, str]:
        """Add the versions that a file asks for. Returns the library of each."""
        owners: dict[str, str] = {}
        library = ""
        for line in read(path, "-V").splitlines():
            if named := re.search(r"File: (\S+)", line):
                library = named[1]
            elif (version := re.search(r"Name: (\S+)", line)) and _LIBRARY.fullmatch(library):
                self.versions[library].add(version[1])
                owners[version[1]] = library
        return owners

    def _add_functions(self, path: Path, owners: Mapping[str, str]) -> None:
        for name, version in re.findall(r" UND (\w+)(?:@@?(\S+))?", read(path, "--dyn-syms")):
            if _FUNCTION.fullmatch(name) and version in owners:
                self.functions[owners[version], version].add(name)
            elif _FUNCTION.fullmatch(name) and not version:
                self.loose.add(name)


def main() -> int:
    """Write the libraries into the folder that is named. Returns the exit code."""
    if len(sys.argv) != 2:
        return failed("usage: python scripts/cuda_stand_ins.py FOLDER", 2)
    folder = Path(sys.argv[1])
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return failed("PyTorch is not installed: make torch")
    if not problem(folder):
        return 0
    if missing := [tool for tool in ("gcc", "readelf") if shutil.which(tool) is None]:
        return failed(f"{missing[0]} is not installed; on Debian and Ubuntu: apt-get install gcc libc6-dev")
    wanted = Wanted(Path(found.origin).parent)
    folder.mkdir(parents=True, exist_ok=True)
    for number, library in enumerate(sorted(wanted.libraries)):
        functions = {version: wanted.functions[library, version] for version in sorted(wanted.versions[library])}
        build(folder / library, functions, wanted.loose if number == 0 else set())
    if last := problem(folder):
        return failed(f"PyTorch does not load with the libraries in {folder}: {last}")
    print(f"cuda_stand_ins: {len(wanted.libraries)} libraries in {folder}")
    return 0


def failed(text: str, code: int = 1) -> int:
    """Tell the user, and give the exit code."""
    print(text if code == 2 else f"cuda_stand_ins: {text}", file=sys.stderr)
    return code


def read(path: Path, part: str) -> str:
    """Return readelf's output about a part of a library."""
    return subprocess.run(["readelf", "-W", part, path], capture_output=True, text=True, check=True).stdout


def build(path: Path, functions: Mapping[str, Iterable[str]], loose: Iterable[str]) -> None:
    """Compile one library with its functions by version, and those without one."""
    names = sorted({name for names in (*functions.values(), loose) for name in names})
    source, script = path.with_suffix(".c"), path.with_suffix(".map")
    source.write_text("\n".join([*map(code, names), "int spotwright_stand_in;"]), encoding="ascii")
    command = [
        "gcc",
        "-w",
        "-shared",
        "-fPIC",
        "-fno-builtin",
        f"-Wl,-soname,{path.name}",
        "-o",
        str(path),
        str(source),
    ]
    if functions:
        nodes = [
            f"{version} {{ global: {' '.join(f'{each};' for each in own)} }};" for version, own in functions.items()
        ]
        script.write_text("\n".join(nodes).replace("global:  }", "}"), encoding="ascii")
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    source.unlink()
    script.unlink(missing_ok=True)


def code(name: str) -> str:
    """Write a function that finds no device. Those with underscores register kernels when a library is loaded."""
    if name == "cudaGetDeviceCount":
        return f"int {name}(int *count) {{ *count = 0; return {_NO_DEVICE}; }}"
    if _TEXT.fullmatch(name):
        return f'const char *{name}(void) {{ return "no CUDA here"; }}'
    return f"long {name}(void) {{ return {0 if name.startswith('_') else _NO_DEVICE}; }}"


def problem(folder: Path) -> str:
    """The last line of the error with which PyTorch is not imported; empty if it is."""
    paths = [str(folder.resolve()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}
    tried = subprocess.run(
        [sys.executable, "-c", "import torch.distributed"], env=environment, capture_output=True, text=True, check=False
    )
    return "" if tried.returncode == 0 else (tried.stderr.strip().splitlines() or ["it ended without a word"])[-1]


if __name__ == "__main__":
    sys.exit(main())
