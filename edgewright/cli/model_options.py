"""Options shared by the commands that compile a model: model, targets, precision and data."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgewright.cli.image_arguments import add_image_arguments
from edgewright.errors import MissingError, UsageError

if TYPE_CHECKING:
    from edgewright.api.compile import CompileSession
    from edgewright.api.progress import Stages

SPEC = "package.module:factory that returns a model with example inputs, or a .pt2"


DATA_OPTIONS = ("calibrate", "samples", "mean", "std")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target_arguments(parser)
    parser.add_argument(
        "--calibrate", metavar="SOURCE",
        help="calibration inputs: an .npz, a folder of images or arrays, or package.module:iterable",
    )  # fmt: skip
    add_data_arguments(parser)


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--target", action="append", default=[], metavar="ethos-u55-128",
        help="the device to compile for; repeatable (see `edgewright targets`)",
    )  # fmt: skip
    add(
        "--quantize", metavar="int8",
        help="quantize the model with this preset of the target; with methods: int8+equalize+adaround+bias",
    )  # fmt: skip


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of calibration data, and the recipe."""
    add = parser.add_argument
    add("--samples", type=int, metavar="N", help="use at most N calibration inputs (default: 128)")
    add_image_arguments(parser)
    add("--recipe", metavar="r.toml", help="precision per module and per target")


def add_evaluate(parser: argparse.ArgumentParser, count: int) -> None:
    parser.add_argument(
        "--evaluate", type=_count_or_source, metavar="N|SOURCE",
        help=f"measure on N inputs held out from calibration (default: {count}), or on other data, like --calibrate",
    )  # fmt: skip


def _count_or_source(text: str) -> int | str:
    """
    >>> _count_or_source("8"), _count_or_source("test.npz")
    (8, 'test.npz')
    """
    return int(text) if text.lstrip("-").isdigit() else text


def same_options(args: argparse.Namespace, *names: str) -> list[str]:
    """The words that give another command the options that this one got.

    >>> same_options(argparse.Namespace(calibrate="photos", mean=[127.0, 99.5], std=None), "calibrate", "mean", "std")
    ['--calibrate', 'photos', '--mean', '127', '99.5']
    >>> same_options(argparse.Namespace(mean=[123.6751]), "mean")
    ['--mean', '123.6751']
    """
    words: list[str] = []
    for name in names:
        value = getattr(args, name)
        if value is not None:
            values = [f"{v:.15g}" for v in value] if isinstance(value, list) else [str(value)]
            words += [f"--{name}", *values]
    return words


def need_torch() -> None:
    """Import the compiler; raises MissingError if torch is not installed."""
    try:
        import torch  # noqa: F401

        import edgewright.program.edge  # noqa: F401
    except ImportError as error:
        remedy = "pip install 'edgewright[compile]'"
        raise MissingError("torch", "is not installed; compiling needs it", remedy=remedy) from error


def selected_targets(args: argparse.Namespace, default: str | None = None) -> list[Any]:
    """The selected targets without duplicates."""
    from edgewright.backends.targets import find_target

    names = args.target or ([default] if default else [])
    if not names:
        raise UsageError("--target", "must name a device", remedy="`edgewright targets` lists them all.")
    return list(dict.fromkeys(find_target(name) for name in names))


def make_session(
    args: argparse.Namespace, stages: Stages, *, weights: str | None = None, original: str | None = None, **options: Any
) -> CompileSession:
    """A ``CompileSession`` for the model, configured from the options. ``weights``: the file that they are mapped from.
    ``original``: the float model of one that is quantized already."""
    with stages("import torch"), quiet_imports():
        need_torch()
        from edgewright.api.compile import CompileSession, Settings
        from edgewright.frontend.model_spec import load_spec
        from edgewright.frontend.safetensors import load_weights
    from edgewright.api.recipe import as_recipe
    from edgewright.cli.inputs import image_options

    with stages("load"):
        spec = load_spec(args.spec)
        if weights:
            load_weights(spec.model, weights)
        if original:
            options["original"] = load_spec(original).model
    inputs = spec.kwargs or spec.args
    settings = Settings(
        as_recipe(args.recipe, args.quantize), images=image_options(args), dynamic_shapes=spec.dynamic_shapes,
        **({} if args.samples is None else {"samples": args.samples}), **options,
    )  # fmt: skip
    return CompileSession(spec.model, inputs, args.calibrate, settings, stages)


def model_name(spec: str) -> str:
    """The base name of a model's output files.

    >>> model_name("nets.small:Net.make"), model_name("dir/m.pt2")
    ('make', 'm')
    """
    if spec.endswith(".pt2"):
        return spec.replace("\\", "/").rpartition("/")[2].removesuffix(".pt2")
    return spec.rpartition(":")[2].rpartition(".")[2]


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Suppress import-time warnings of packages about optional libraries."""
    was = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(was)
