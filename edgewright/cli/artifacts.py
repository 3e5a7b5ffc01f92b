"""``--simulate-only`` and ``--emit``: what backends make besides files for their devices."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from edgewright.errors import CoverageError, UsageError
from edgewright.files import write_file

FORMATS = ("tflite",)


class _SetVariable(argparse.Action):
    """An option that stands for an environment variable, of the name of its destination."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        os.environ[self.dest] = str(values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--simulate-only", action="store_true",
        help="make a program that runs on this machine and not on the device; needs no compiler of the vendor's",
    )  # fmt: skip
    parser.add_argument(
        "--no-simulation", action="store_true",
        help="with --target: fail where a vendor's compiler is missing, instead of making such a program",
    )  # fmt: skip
    parser.add_argument(
        "--qnn-sdk", metavar="FOLDER", action=_SetVariable, dest="QNN_SDK_ROOT",
        help="Qualcomm's own SDK to compile with, as QNN_SDK_ROOT says (default: onnxruntime-qnn)",
    )  # fmt: skip
    parser.add_argument(
        "--emit", choices=FORMATS, help="write what the backend gives to the vendor's compiler, instead of a program"
    )


def ending(args: argparse.Namespace) -> str:
    """Of the file to write."""
    return f".{args.emit}" if args.emit else ".pte"


def check_options(args: argparse.Namespace) -> None:
    for option in ("simulate_only", "emit"):
        if getattr(args, option) and not args.backend:
            raise UsageError(f"--{option.replace('_', '-')}", "needs a --backend")


def partitioner(args: argparse.Namespace, name: str, target: str | None) -> Any:
    """A backend's partitioner, as the options want it."""
    from edgewright.backends import find_partitioner

    cls = find_partitioner(name)
    if not args.simulate_only and not args.emit:
        return cls.for_target(target)
    made = getattr(cls, "for_simulation", None)
    if made is None:
        option = "--emit" if args.emit else "--simulate-only"
        raise UsageError(
            option, "is for backends whose programs need a vendor's compiler: nxp, qualcomm, samsung", value=name
        )
    return made(target)


def write_emitted(partitioners: list[Any], output: Path) -> list[tuple[Path, int]]:
    """One file for each group that backends took; a number in the name tells several apart."""
    files = [data for chosen in partitioners for data in chosen.files]
    if not files:
        remedy = "Quantize the model first; --report says why each operator was left."
        raise CoverageError(str(output), "nothing of the model was taken", remedy=remedy)
    paths = [output if len(files) == 1 else output.with_stem(f"{output.stem}_{i}") for i in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        write_file(path, [data])
    return [(path, len(data)) for path, data in zip(paths, files, strict=True)]
