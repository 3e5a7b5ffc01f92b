"""``edgewright report``: one HTML page about a program: graph, layers, memory, time; several files side by side."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from edgewright.api.compile_report import EVALUATED
from edgewright.cli import model_options
from edgewright.cli.inputs import image_options, load_inputs
from edgewright.cli.run import parse_memory
from edgewright.console import clean, console
from edgewright.errors import UsageError
from edgewright.files import check_writable, write_file
from edgewright.report.collect import Options, collect
from edgewright.report.export import model_explorer, perfetto_trace
from edgewright.report.model import FileReport, Report
from edgewright.report.page import save
from edgewright.report.timing import add_etdump
from edgewright.runtime.example_inputs import ones
from edgewright.units import size

EXAMPLES = """examples:
  edgewright report m.pte -o report.html
  edgewright report int8.pte float.pte -o report.html            # side by side, differences first
  edgewright report m.pte --model net:Net --quantize int8 --inputs calib.npz -o report.html   # errors by layer
  edgewright report m.pte --flash 512K --ram 256K --no-run -o report.html
  edgewright report m.pte --trace t.json --model-explorer overlay.json -o report.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("files", nargs="+", metavar="m.pte", help="the programs; of a .bpte, also its test cases")
    add("-o", "--output", required=True, metavar="report.html", help="the page to write")
    add("--data", action="append", default=[], metavar="w.ptd", help="external weights; repeatable")
    add("--method", default="forward", help="the method to profile (default: forward)")
    add(
        "--model",
        dest="spec",
        metavar="SPEC",
        help=f"the model of the files, for accuracy and reasons: {model_options.SPEC}",
    )
    add(
        "--inputs", dest="calibrate", metavar="SOURCE",
        help="with --model: calibration and evaluation inputs, as compile's --calibrate; without it: an .npz or an "
        "image to profile on (default: ones)",
    )  # fmt: skip
    model_options.add_target_arguments(parser)
    model_options.add_data_arguments(parser)
    model_options.add_evaluate(parser, EVALUATED)
    add("--flash", type=parse_memory, metavar="512K", help="limit of the file's size, as a line in the charts")
    add("--ram", type=parse_memory, metavar="256K", help="limit of the memory at run time, as a line in the charts")
    add(
        "--repeat", type=int, metavar="N", help="profile N runs on this machine (default: about a second, 5 to 50 runs)"
    )
    add("--no-run", action="store_true", help="do not run the programs")
    add("--etdump", metavar="p.etdp", help="show this profile of a device, too")
    add("--trace", metavar="t.json", help="write the timelines for Perfetto")
    add(
        "--model-explorer",
        metavar="overlay.json",
        help="write figures by node for Google's Model Explorer: overlay.time.json, overlay.macs.json, ...",
    )


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    options = Options(
        None if args.no_run else _inputs(args), _basis(args), args.repeat, args.method, args.flash, args.ram
    )
    names = _names(args.files)
    files = [collect(path, name, options, args.data) for path, name in zip(args.files, names, strict=True)]
    if args.spec:
        _add_model(args, files)
    if args.etdump:
        add_etdump(files[0], args.etdump, Path(args.etdump).name)
    written = [(args.output, save(Report(", ".join(names), files), args.output))]
    contents = {args.trace: perfetto_trace(files)} if args.trace else {}
    if args.model_explorer:
        contents |= {_beside(args.model_explorer, name): data for name, data in model_explorer(files[0]).items()}
    for path, content in contents.items():
        written.append((path, write_file(path, [json.dumps(content, allow_nan=False).encode()])))
    if not args.quiet:
        for name, file in zip(names, files, strict=True):
            for step in file.next_steps if args.spec else ():
                console().print(clean(f"{name}: {step}"), soft_wrap=True)
        for path, count in written:
            console().print(f"wrote {clean(path)} ({size(count)})", style="green", soft_wrap=True)
    return 0


def _beside(path: str, name: str) -> str:
    """The file of one figure: ``overlay.time.json``."""
    return str(Path(path).with_suffix(f".{name}.json"))


def _check_options(args: argparse.Namespace) -> None:
    if args.repeat is not None and args.repeat < 1:
        raise UsageError("--repeat", "must be 1 or more", value=args.repeat, remedy="--no-run leaves the profile out.")
    if Path(args.output).suffix not in (".html", ".htm"):
        raise UsageError(args.output, "must end in .html")
    for option in ("target", "quantize", "recipe"):
        if getattr(args, option) and not args.spec:
            raise UsageError(f"--{option}", "needs a --model")
    for path in filter(None, (args.output, args.trace, args.model_explorer)):
        check_writable(path)


def _names(paths: list[str]) -> list[str]:
    """The names of the files, with their folders where they would be the same."""
    short = [Path(path).name for path in paths]
    return [path if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]


def _inputs(args: argparse.Namespace) -> Any:
    if args.spec or not args.calibrate:
        return ones
    return lambda metadata: load_inputs(args.calibrate, metadata, image_options(args))


def _basis(args: argparse.Namespace) -> str:
    return (
        "every input filled with ones" if args.spec or not args.calibrate else f"inputs of {Path(args.calibrate).name}"
    )


def _add_model(args: argparse.Namespace, files: list[FileReport]) -> None:
    """Compile the model again, and compare every file with it."""
    from edgewright.api.progress import Stages

    with Stages(args.quiet) as stages, model_options.quiet_imports():
        evaluate = EVALUATED if args.evaluate is None else args.evaluate
        session = model_options.make_session(args, stages, evaluate=evaluate)
        from edgewright.api.model_report import add_model
        from edgewright.api.quantization import quiet_warnings

        targets = model_options.selected_targets(args) if args.target else [None]
        if len(targets) > 1:
            raise UsageError("--target", "must be a single device", value=len(targets))
        session.quantization.keeps_models = True
        with quiet_warnings():
            for path, file in zip(args.files, files, strict=True):
                add_model(file, path, args.data, session, targets[0])
