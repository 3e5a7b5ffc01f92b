"""``--simulate-only`` and ``--emit``: outputs other than a program for the device."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from edgewright.errors import CoverageError, UsageError
from edgewright.files import write_file

FORMATS = ("tflite",)


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
    parser.add_argument("--emit", choices=FORMATS, help="write the vendor compiler's input instead of a program")


def ending(args: argparse.Namespace) -> str:
    """The suffix of the output file."""
    return f".{args.emit}" if args.emit else ".pte"


def check_options(args: argparse.Namespace) -> None:
    for option in ("simulate_only", "emit"):
        if getattr(args, option) and not args.backend:
            raise UsageError(f"--{option.replace('_', '-')}", "needs a --backend")


def partitioner(args: argparse.Namespace, name: str, target: str | None) -> Any:
    """A backend's partitioner, configured from the options."""
    from edgewright.backends import discover, find_partitioner

    cls = find_partitioner(name)
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
