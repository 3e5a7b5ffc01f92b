"""The flags of these scripts: those of ExecuTorch's, old and new, and a few of our own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgewright.errors import FileAccessError, FormatError, UsageError

# ExecuTorch's flags for what is not done here: what to say to who gives them.
_REFUSED = {
    "online_prepare": "Graphs are compiled here, not on the phone.",
    "dump_intermediate_outputs": "`edgewright compare` compares layer by layer.",
    "direct_build_folder": "Programs run through Android's runner.",
    "ip": "Results are printed.",
    "port": "Results are printed.",
}
_CHOSEN = {"backend": "htp", "target": "aarch64-android"}


def common(name: str, size: int) -> argparse.ArgumentParser:
    """A parser with the flags that all scripts have."""
    parser = argparse.ArgumentParser(prog=name, description=f"Compiles {name} for Qualcomm's HTP.")
    add = parser.add_argument
    add("-m", "--model", "--soc_model", dest="soc_model", help="the SoC, such as SM8550 (needed)")
    add("-b", "--build_folder", help="ExecuTorch's build for Android, with its runner")
    add("-s", "--device", help="the phone's serial, as adb devices lists it")
    add("-H", "--host", help="of an adb server on another machine")
    add("-a", "--artifact", default=f"./{name}", help="the folder for everything (default: %(default)s)")
    add("-c", "--compile_only", action="store_true", help="stop after the .pte")
    add("--pre_gen_pte", metavar="FOLDER", help="a folder with a .pte that is ready")
    add("-x", "--enable_x86_64", action="store_true", help="run on this machine: Qualcomm's emulator, or the host twin")
    add("-z", "--shared_buffer", action="store_true", help="the phone's buffers are read where they are")
    add("-S", "--skip_delegate_node_ids", help="names of nodes to leave to the CPU, with commas")
    add("-f", "--skip_delegate_node_ops", help="operators to leave to the CPU, such as aten.add.Tensor, with commas")
    add("--profile_level", type=int, default=0, choices=(0, 2, 3), help="0 off, 2 detailed, 3 every operator")
    add("--htp_performance_mode", type=int, default=2, choices=range(9), help="0 to 8 (default: 2, burst)")
    add("--skip_push", action="store_true", help="the phone has libraries and runner already")
    add("--ci", action="store_true", help="random inputs, whatever else is there")
    add("--seed", type=int, default=0, help="of random weights and inputs")
    add("--config_file", metavar="x.json", help="flags by name, as JSON; those of the command line come first")
    _add_ours(parser, size)
    for flag in (*_REFUSED, *_CHOSEN):
        kind: dict[str, Any] = {"action": "store_true"} if flag[:4] in ("onli", "dump") else {}
        add(f"--{flag}", help=argparse.SUPPRESS, **kind)
    return parser


def _add_ours(parser: argparse.ArgumentParser, size: int) -> None:
    add = parser.add_argument
    add("--weights", metavar="w.safetensors", help="the model's weights (default: random)")
    add("--qnn-sdk", metavar="FOLDER", help="Qualcomm's SDK with libraries for phones (default: QNN_SDK_ROOT)")
    add("--fp16", action="store_true", help="real numbers of 16 bits, instead of integers")
    add("--count", type=int, default=1, help="how many inputs")
    add("--size", type=int, default=size, help="of an input's side, or its length (default: %(default)s)")


def dataset(parser: argparse.ArgumentParser) -> None:
    """Of scripts that are tested with ImageNet."""
    parser.add_argument("-d", "--dataset", help="a folder of images, such as imagenet-mini/val, or an .npz of arrays")


def arrays(parser: argparse.ArgumentParser) -> None:
    """Of scripts whose inputs are no images."""
    parser.add_argument("--dataset", help="an .npz of arrays")


def pretrained(parser: argparse.ArgumentParser) -> None:
    """Of scripts whose weights are files of torch's."""
    parser.add_argument("-p", "--pretrained_weight", dest="weights", help="the model's weights, as torch saved them")


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags, with those of ``--config_file``; what is not done here is refused."""
    args = parser.parse_args(argv)
    if args.config_file:
        parser.set_defaults(**_config(parser, args.config_file))
        args = parser.parse_args(argv)
    if not args.soc_model:
        raise UsageError("-m", "must name the SoC", remedy="Such as -m SM8550.")
    for flag, reason in _REFUSED.items():
        if getattr(args, flag) not in (None, False, "", -1):
            raise UsageError(f"--{flag}", "is not supported", remedy=f"{reason} Leave it out.")
    for flag, only in _CHOSEN.items():
        if getattr(args, flag) not in (None, only):
            raise UsageError(f"--{flag}", f"must be {only}", value=getattr(args, flag))
    if args.count < 1:
        raise UsageError("--count", "must be at least 1", value=args.count)
    if args.compile_only and args.pre_gen_pte:
        raise UsageError("--pre_gen_pte", "must be left out with --compile_only")
    return args


def _config(parser: argparse.ArgumentParser, path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileAccessError(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"must be JSON: {error}", where=path) from error
    known = {action.dest for action in parser._actions}
    unknown = sorted(set(found) - known) if isinstance(found, dict) else ["no object"]
    if unknown:
        raise UsageError(path, "must be an object of flags by name", value=", ".join(map(str, unknown)))
    return {name: value for name, value in found.items() if value is not None}
