"""Options of ``edgewright compile`` that concern single backends: simulation, ``--emit``, SDKs, memory modes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewright.backends.registry import find_backend
from edgewright.backends.targets import Target
from edgewright.errors import CoverageError, UsageError
from edgewright.files import write_file

if TYPE_CHECKING:
    from edgewright.bare_metal.describe import Description

FORMATS = ("tflite", "c", "object")
_ETHOS_U = "ethos_u"
Sources = tuple["Description", list[tuple[Path, int]]]  # a program as C: what it describes, and files with their sizes
_VELA_OPTIONS = ("memory_mode", "system_config", "vela_ini", "optimise", "arena_cache_size", "vela_flags")


class _SetVariable(argparse.Action):
    """An option that sets the environment variable named by its destination."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        os.environ[self.dest] = str(values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--simulate-only", action="store_true",
        help="compile a program that runs on this machine but not on the device; needs no vendor compiler",
    )  # fmt: skip
    parser.add_argument(
        "--no-simulation", action="store_true",
        help="with --target: fail if a vendor compiler is missing, instead of compiling for simulation",
    )  # fmt: skip
    parser.add_argument(
        "--qnn-sdk", metavar="FOLDER", action=_SetVariable, dest="QNN_SDK_ROOT",
        help="the Qualcomm SDK to compile with; overrides QNN_SDK_ROOT (default: onnxruntime-qnn)",
    )  # fmt: skip
    parser.add_argument(
        "--memory-mode", metavar="MODE",
        help="for Ethos-U: where Vela places weights and activations, such as Sram_Only (a section of Arm's vela.ini)",
    )  # fmt: skip
    parser.add_argument(
        "--system-config", metavar="NAME",
        help="for Ethos-U: clock and memories, such as Ethos_U55_Deep_Embedded (a section of Arm's vela.ini)",
    )  # fmt: skip
    parser.add_argument("--vela-ini", metavar="board.ini", help="for Ethos-U: your vela.ini, with the sections above")
    parser.add_argument(
        "--optimise", choices=("size", "performance"),
        help="for Ethos-U: what Vela prefers, less memory or fewer cycles (default: performance)",
    )  # fmt: skip
    parser.add_argument(
        "--arena-cache-size", metavar="256K",
        help="for Ethos-U: memory that activations should fit (a warning says if they do not); in the dedicated SRAM "
        "modes, of fast memory",
    )  # fmt: skip
    parser.add_argument("--vela-flags", metavar='"--verbose-schedule"', help="for Ethos-U: further options of Vela")
    parser.add_argument(
        "--emit", choices=FORMATS,
        help="tflite: write the vendor compiler's input instead of a program; c: also write the program as C sources, "
        "with pool sizes, to a folder of its name (as `edgewright export` does); object: as one object file that needs "
        "no runtime, with its header, for a --target such as cortex-m55 or the --cpu beside an NPU",
    )  # fmt: skip


def ending(args: argparse.Namespace) -> str:
    """The suffix of the output file."""
    return ".tflite" if emits_input(args) else ".pte"


def emits_input(args: argparse.Namespace) -> bool:
    """True if the vendor compiler's input is written instead of a program."""
    return bool(args.emit == "tflite")


def export_sources(args: argparse.Namespace, program: Path) -> list[Sources]:
    """Write a program that was saved as C, if the options ask for it; returns its description and its files."""
    if args.emit != "c":
        return []
    from edgewright.bare_metal.export import export_c, name_of

    return [export_c(program, program.with_suffix(""), name=name_of(program))]


def check_options(args: argparse.Namespace) -> None:
    for option, given in (("--simulate-only", args.simulate_only), ("--emit", emits_input(args))):
        if given and not args.backend:
            raise UsageError(option, "needs a --backend")


def ethos_u_spec(args: argparse.Namespace, target: str | None) -> Any:
    """The compile spec of an Ethos-U with the options for it; None without them."""
    options = {name: getattr(args, name) for name in _VELA_OPTIONS if getattr(args, name) is not None}
    if not options:
        return None
    from edgewright.backends.ethos_u.target import make_spec

    return make_spec(target or "", options)


def check_ethos_u(args: argparse.Namespace, backends: Collection[str]) -> None:
    """Reject the options for Ethos-U if none of the backends is."""
    for option in _VELA_OPTIONS:
        if getattr(args, option) is not None and _ETHOS_U not in backends:
            remedy = "Name one: --target ethos-u55-128."
            raise UsageError(f"--{option.replace('_', '-')}", "is for Ethos-U targets", remedy=remedy)


def check_boards(args: argparse.Namespace, targets: Iterable[Target]) -> None:
    """Reject C sources for targets whose delegates ExecuTorch's bare-metal runtime does not execute."""
    for target in targets:
        if args.emit == "c" and not find_backend(target.backend).device_memory:
            raise UsageError("--emit c", "is for targets on microcontrollers, such as ethos-u55-128", value=target.name)


def partitioner(args: argparse.Namespace, name: str, target: str | None) -> Any:
    """A backend's partitioner, configured from the options."""
    from edgewright.backends import discover, find_partitioner

    cls = find_partitioner(name)
    if name == _ETHOS_U and (spec := ethos_u_spec(args, target)) is not None:
        return cls.for_spec(spec)
    if not args.simulate_only and not emits_input(args):
        return cls.for_target(target)
    simulated = [info.name for info in discover().values() if info.simulates]
    if name not in simulated:
        option = "--emit" if emits_input(args) else "--simulate-only"
        rule = f"is for backends whose programs need a vendor's compiler: {', '.join(simulated)}"
        raise UsageError(option, rule, value=name)
    return cls.for_simulation(target)


def write_emitted(partitioners: list[Any], output: Path) -> list[tuple[Path, int]]:
    """Write one file per delegated group, numbered if there are several."""
    files = [data for p in partitioners for data in p.files]
    if not files:
        remedy = "Quantize the model first; --report lists why each operator was rejected."
        raise CoverageError(str(output), "no operator was delegated", remedy=remedy)
    paths = [output if len(files) == 1 else output.with_stem(f"{output.stem}_{i}") for i in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        write_file(path, [data])
    return [(path, len(data)) for path, data in zip(paths, files, strict=True)]
