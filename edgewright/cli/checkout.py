"""``edgewright compat --checkout DIR``: a folder that stands for ExecuTorch's checkout.

It has the scripts and programs that ExecuTorch's pages call by their paths, each a line that calls Edgewright: runners
run programs on this machine, Arm's scripts run them on the NPU's simulator, and ``python -m examples.x.y`` runs an
example of the installed ExecuTorch on Edgewright, ``python -m backends.x.y`` one of its scripts. What a phone or a
board needs has to be built from ExecuTorch's own sources.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgewright.backends.ethos_u import fvp
from edgewright.backends.ethos_u.blob import read_blob
from edgewright.backends.ethos_u.npu.stream import accelerator_of
from edgewright.backends.ethos_u.target import ACCELERATORS, check_choice
from edgewright.cli import guard, runner
from edgewright.cli import main as edgewright
from edgewright.cli.parser import Parser
from edgewright.console import note, plural
from edgewright.errors import FileAccessError, UsageError
from edgewright.files import write_file
from edgewright.formats.pte_reader import read_program

_RUNNERS = (
    "cmake-out/executor_runner",
    "cmake-out/backends/xnnpack/xnn_executor_runner",
    "build-x86/examples/qualcomm/executor_runner/qnn_executor_runner",
)
_ARM = "backends/arm/scripts"
_SETUP_PATH = "examples/arm/arm-scratch/setup_path.sh"
_BUILT = "# the program of this runner: "  # a line of what build_executor_runner.sh makes
_MODULES = ("backends", "examples")
_PACKAGE = '''"""Stands for ExecuTorch's {package}: ``python -m {package}.x.y`` runs that module on Edgewright."""

import os
import sys
from importlib.machinery import PathFinder

words = sys.orig_argv
if "-m" in words and words[words.index("-m") + 1].startswith("{package}."):
    start = words.index("-m") + 1
    module = ["-m", "edgewright", "compat", *{options}, "-m", "executorch." + words[start]]
    os.execv(sys.executable, [sys.executable, *module, *words[start + 1 :]])
found = PathFinder.find_spec("executorch")  # these modules import each other
__path__ = [] if found is None else [os.path.join(f, "{package}") for f in found.submodule_search_locations]
'''


def write(folder: str, *, for_simulation: bool = False) -> int:
    """Make the folder. ``for_simulation``: its examples compile for this machine only."""
    root = Path(folder)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise FileAccessError(folder, "must be a new folder, or an empty one", remedy="Name another.")
    options = ["--simulate-only"] if for_simulation else []
    for path in _RUNNERS:
        _write_script(root / path, [path.rpartition("/")[2], str(root.resolve())])
    for path in _SCRIPTS:
        _write_script(root / path, [path, str(root.resolve()), *options])
    for package in _MODULES:
        text = _PACKAGE.format(package=package, options=options)
        write_file(root / package / "__init__.py", [text.encode()], durable=False)
    print(f"{plural(len(_RUNNERS) + len(_SCRIPTS), 'script')} in {folder}, and python -m examples... or backends...")
    print(f"export EXECUTORCH_ROOT={shlex.quote(str(root.resolve()))}")
    return 0


def _write_script(path: Path, words: Sequence[str], comment: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    call = shlex.join([sys.executable, "-m", "edgewright.cli.checkout", *words])
    write_file(path, [f'#!/bin/sh\n{comment}exec {call} "$@"\n'.encode()], durable=False)
    path.chmod(0o755)


def main(words: Sequence[str]) -> int:
    """Do what one of the scripts does: its name, the folder, and its arguments."""
    name, root, *arguments = words
    options = [word for word in arguments[:1] if word == "--simulate-only"]
    arguments = arguments[len(options) :]
    if name == "arm_executor_runner":
        return _run_program(root, arguments)
    if name.endswith("_runner"):
        return runner.main(arguments, name)
    script = _SCRIPTS[name]
    return guard(lambda: script(Path(root), options, arguments))


def _run_program(program: str, arguments: Sequence[str]) -> int:
    return runner.main(["--model_path", program, *arguments], "arm_executor_runner")


# ------------------------------------------------------------------------------------------------------------ scripts


def _setup(root: Path, options: Sequence[str], arguments: Sequence[str]) -> int:
    """Arm's setup.sh downloads Vela, a compiler and a virtual platform, and writes a file to source that adds them to
    ``PATH``; `doctor` says which of them are here."""
    if arguments:
        note(f"{shlex.join(arguments)}: about downloads of Arm's script, and without effect here.")
    (root / _SETUP_PATH).parent.mkdir(parents=True, exist_ok=True)
    write_file(root / _SETUP_PATH, [f"export EXECUTORCH_ROOT={shlex.quote(str(root))}\n".encode()], durable=False)
    return edgewright(["doctor", "--target", "ethos-u55-128"])


def _setup_nxp(root: Path, options: Sequence[str], arguments: Sequence[str]) -> int:
    """NXP's setup.sh installs its converter; `doctor` says whether it is here, and the command that gets it."""
    return edgewright(["doctor", "--target", "imxrt700"])


def _neutron(root: Path, options: Sequence[str], arguments: Sequence[str]) -> int:
    model, *more = arguments or ["cifar10"]
    module = "executorch.examples.nxp.aot_neutron_compile"
    return edgewright(["compat", *options, "-m", module, "--quantize", "--delegate", "-m", model, *more])


def _build_library(root: Path, options: Sequence[str], arguments: Sequence[str]) -> int:
    note("Nothing to build: Edgewright's runtime runs programs on this machine. A board needs ExecuTorch's library.")
    return 0


def _build_runner(root: Path, options: Sequence[str], arguments: Sequence[str]) -> int:
    """A runner with its program, where ExecuTorch's script would put the binary."""
    parser = _parser("build_executor_runner.sh", pte=None, target="ethos-u55-128", output=None)
    args, rest = parser.parse_known_args(arguments)
    program = _find(args.pte, root)
    _check_target(program, args.target)
    if rest:
        note(f"{shlex.join(rest)}: about the build of a binary, and without effect here.")
    folder = Path(args.output) if args.output else program.with_suffix("") / "cmake-out"
    _write_script(folder / "arm_executor_runner", ["arm_executor_runner", str(program)], f"{_BUILT}{program}\n")
    print(f"{folder / 'arm_executor_runner'} runs {program.name} on this machine")
    return 0


def _run_fvp(root: Path, options: Sequence[str], arguments: Sequence[str]) -> int:
    """Runs a binary on Arm's platform, and what ``_build_runner`` made on the simulator."""
    parser = _parser("run_fvp.sh", elf=None, target="ethos-u55-128", timeout="600", trace_file=None)
    args = parser.parse_args(arguments)
    elf = _find(args.elf, root)
    head = elf.read_bytes()[:4096]
    if head.startswith(b"\x7fELF"):
        executable = fvp.find_executable(check_choice("--target", args.target, ACCELERATORS), None)
        platform = fvp.Platform(args.target, elf.resolve(), executable, int(args.timeout), trace=args.trace_file)
        fvp.run(platform, lambda line: print(line, flush=True))
        return 0
    lines = head.decode(errors="replace").splitlines()
    built = [line.removeprefix(_BUILT) for line in lines if line.startswith(_BUILT)]
    if not built:
        raise UsageError(str(elf), "must be a binary, or made by this folder's build_executor_runner.sh")
    if args.trace_file:
        raise UsageError("--trace_file", "needs Arm's virtual platform, which counts cycles", remedy="Leave it out.")
    _check_target(Path(built[0]), args.target)
    note(f"On a simulator of {args.target}, not on Arm's virtual platform: the NPU's results, without its cycles.")
    return _run_program(built[0], [])


Script = Callable[[Path, Sequence[str], Sequence[str]], int]
_SCRIPTS: dict[str, Script] = {
    "examples/arm/setup.sh": _setup,
    "examples/nxp/aot_neutron_compile.sh": _neutron,
    "examples/nxp/setup.sh": _setup_nxp,
    f"{_ARM}/build_executorch.sh": _build_library,
    f"{_ARM}/build_executor_runner.sh": _build_runner,
    f"{_ARM}/run_fvp.sh": _run_fvp,
}


def _parser(prog: str, **options: str | None) -> argparse.ArgumentParser:
    """A parser of the options of ExecuTorch's script; None: one that is required."""
    parser = Parser(prog=prog, allow_abbrev=False)
    for name, default in options.items():
        required: dict[str, Any] = {"required": True} if name in ("pte", "elf") else {}
        parser.add_argument(f"--{name}", default=default, **required)
    return parser


def _find(text: str, root: Path) -> Path:
    """A file by a path from here, from the folder, or, as pages have it, with the folder's name before a path from
    here."""
    path = Path(text)
    inner = Path(*path.parts[1:]) if path.parts[:1] == (root.name,) else path
    found = next((each for each in (path, root / path, inner) if each.is_file()), None)
    if found is None:
        raise FileAccessError(text, "is not a file", remedy=f"Give a path from here, or from {root}.")
    return found.resolve()


def _check_target(program: Path, target: str) -> None:
    """Raise unless the program's delegates were compiled for this NPU."""
    check_choice("--target", target, ACCELERATORS)
    read = read_program(program)
    named = {item.key: read.segment(item.segment_index) for item in read.named_data or ()}
    delegates = [d for plan in read.execution_plan for d in plan.delegates if d.id == "EthosUBackend"]
    found = {accelerator_of(bytes(read_blob(read.blob(d), named).cmd_data)) for d in delegates}
    if found - {target}:
        other = ", ".join(sorted(found))
        raise UsageError(program.name, f"must be compiled for {target}", value=other, remedy=f"Pass --target={other}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
