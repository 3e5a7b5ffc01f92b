"""Options of ``edgewright compile`` that concern single backends: simulation, ``--emit``, SDKs, memory modes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from edgewright.errors import CoverageError, UsageError
from edgewright.files import write_file

FORMATS = ("tflite",)
_ETHOS_U = "ethos_u"


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
    parser.add_argument("--emit", choices=FORMATS, help="write the vendor compiler's input instead of a program")


def ending(args: argparse.Namespace) -> str:
    """The suffix of the output file."""
    return f".{args.emit}" if args.emit else ".pte"


def check_options(args: argparse.Namespace) -> None:
    for option in ("simulate_only", "emit"):
        if getattr(args, option) and not args.backend:
            raise UsageError(f"--{option.replace('_', '-')}", "needs a --backend")


def ethos_u_spec(args: argparse.Namespace, target: str | None) -> Any:
    """The compile spec of an Ethos-U with the options for it; None without them."""
    if args.memory_mode is None and args.system_config is None:
        return None
    from edgewright.backends.ethos_u import EthosUCompileSpec

    return EthosUCompileSpec(target or "", args.system_config, args.memory_mode)


def check_ethos_u(args: argparse.Namespace, backends: Collection[str]) -> None:
    """Reject the options for Ethos-U if none of the backends is."""
    for option in ("memory_mode", "system_config"):
        if getattr(args, option) is not None and _ETHOS_U not in backends:
            remedy = "Name one: --target ethos-u55-128."
            raise UsageError(f"--{option.replace('_', '-')}", "is for Ethos-U targets", remedy=remedy)


def partitioner(args: argparse.Namespace, name: str, target: str | None) -> Any:
    """A backend's partitioner, configured from the options."""
    from edgewright.backends import discover, find_partitioner

    cls = find_partitioner(name)
    if name == _ETHOS_U and (spec := ethos_u_spec(args, target)) is not None:
        return cls.for_spec(spec)
    if not args.simulate_only and not args.emit:
        return cls.for_target(target)
    simulated = [info.name for info in discover().values() if info.simulates]
    if name not in simulated:
        option = "--emit" if args.emit else "--simulate-only"
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
