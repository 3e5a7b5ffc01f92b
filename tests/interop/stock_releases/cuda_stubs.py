"""Stub libraries in place of CUDA's, so that a CUDA build of torch loads on a machine without 3 GB of them.

Old releases of torch are on some indexes as CUDA builds only. Their libraries link CUDA's by name and symbol version,
but call none of it for tensors of the CPU: functions that return zero are enough.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

_OTHERS = ("GLIBC", "CXXABI", "GCC", "GOMP", "OMP", "GLIBCXX", "LIBSHM")  # versions of libraries that are here
_FOREIGN = ("Py", "_Py", "_Z")  # of the interpreter and of C++: CUDA's interfaces are C


def write_stubs(folder: Path) -> list[str]:
    """Write a stub for each library that those in ``folder`` need and that is not found; returns their names."""
    libraries = sorted(folder.glob("*.so*"))
    missing = _missing(libraries)
    if not missing:
        return []
    by_library: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for symbol, symbol_version in _undefined(libraries).items():
        owners = [name for name in missing if symbol_version and symbol_version.lower() in name.lower()]
        by_library[owners[0] if owners else missing[0]].append((symbol, symbol_version))
    for name in missing:
        _compile(folder / name, by_library[name])
    return missing


def _missing(libraries: list[Path]) -> list[str]:
    needed: set[str] = set()
    for library in libraries:
        needed |= set(re.findall(r"NEEDED.*\[(.*)\]", _output("readelf", "-d", str(library))))
    return sorted(name for name in needed - {library.name for library in libraries} if not _loads(name))


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _undefined(libraries: list[Path]) -> dict[str, str]:
    """The symbols that none of the libraries define, with their versions (or an empty string)."""
    undefined: dict[str, str] = {}
    defined: set[str] = set()
    for library in libraries:
        for line in _output("nm", "-D", "--with-symbol-versions", str(library)).splitlines():
            *_, kind, symbol = line.split()
            name, _, symbol_version = symbol.partition("@")
            if kind == "U":
                undefined[name] = symbol_version.lstrip("@")
            elif kind not in "wv":
                defined.add(name)
    return {
        name: symbol_version
        for name, symbol_version in undefined.items()
        if name not in defined and not symbol_version.startswith(_OTHERS) and not name.startswith(_FOREIGN)
    }


def _compile(path: Path, symbols: list[tuple[str, str]]) -> None:
    versions: dict[str, list[str]] = defaultdict(list)
    for symbol, symbol_version in symbols:
        if symbol_version:
            versions[symbol_version].append(symbol)
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stub.c"), Path(folder, "stub.map")
        source.write_text("".join(f"void* {symbol}() {{ return 0; }}\n" for symbol, _ in symbols) or "int unused;\n")
        script.write_text("".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions.items()))
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}", "-o", str(path)]
        command += [f"-Wl,--version-script={script}"] if versions else []
        subprocess.run([*command, str(source)], check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
