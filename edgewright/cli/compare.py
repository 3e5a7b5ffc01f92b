"""``edgewright compare``: layers ranked by quantization error, and which to raise to 16 bits."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING

from edgewright.api.compile_report import EVALUATED
from edgewright.api.progress import Stages
from edgewright.cli import model_options
from edgewright.cli.model_options import DATA_OPTIONS, SPEC, make_session, quiet_imports, same_options, selected_targets
from edgewright.console import clean, console, table
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.units import share

if TYPE_CHECKING:
    from edgewright.api.compare import Comparison, LayerError

EXAMPLES = """examples:
  edgewright compare net:Net --target ethos-u55-128 --quantize int8 --calibrate calib.npz
  edgewright compare net:Net --target sm8550 --quantize int8 --calibrate calib.npz --write-recipe raised.toml
  edgewright compile net:Net --target sm8550 --recipe raised.toml --calibrate calib.npz -o m.pte
"""
_TOP = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help=SPEC)
    model_options.add_arguments(parser)
    add = parser.add_argument
    model_options.add_evaluate(parser, EVALUATED)
    add("--no-device", action="store_true", help="skip the device run (faster)")
    add("--top", type=int, default=_TOP, metavar="N", help=f"show the N worst layers (default: {_TOP})")
    add("--write-recipe", metavar="r.toml", help="write a recipe that raises the recommended modules")
    add("--json", action="store_true", help="print every layer as JSON")


def run(args: argparse.Namespace) -> int:
    targets = selected_targets(args)
    if len(targets) > 1:
        raise UsageError("--target", "must be a single device: layers are ranked per device", value=len(targets))
    if args.quantize is None and args.recipe is None:
        raise UsageError("--quantize", "is required: a floating-point model has no quantization error",
                         remedy="Name a preset of the target: --quantize int8.")  # fmt: skip
    evaluate = EVALUATED if args.evaluate is None else args.evaluate
    if isinstance(evaluate, int) and evaluate < 1:
        raise UsageError("--evaluate", "must be 1 or more", value=evaluate)
    with Stages(args.quiet) as stages, quiet_imports():
        session = make_session(args, stages, evaluate=evaluate)
        from edgewright.api.compare import compare
        from edgewright.api.quantization import quiet_warnings

        with quiet_warnings():
            comparison = compare(session, targets[0], device=not args.no_device)
    recipe = comparison.recipe(session.settings.recipe)
    if args.write_recipe:
        write_file(args.write_recipe, [recipe.to_toml().encode()])
    if args.json:
        print(json.dumps(comparison.to_dict(), indent=2))
    elif not args.quiet:
        _show(args, comparison, recipe.to_toml())
    return 0


def _show(args: argparse.Namespace, comparison: Comparison, recipe: str) -> None:
    out = console()
    device = "" if comparison.device is None else f", {comparison.device:.1f} dB on {comparison.target}"
    headline = (
        f"{comparison.target}, {comparison.precision}: output SQNR {comparison.fake:.1f} dB fake-quantized{device}"
    )
    out.print(f"{headline}, {comparison.measured_on}", style="bold", soft_wrap=True)
    layers = comparison.layers[: args.top]
    heads = ("layer", "operators", ">adds", ">output", ">share", ">fake", ">device")
    title = "layers by the error each introduces (SQNR in dB)"
    out.print(table(title, heads, [_row(layer) for layer in layers], flexible="layer", tight=True))
    if len(comparison.layers) > len(layers):
        out.print(
            f"{len(comparison.layers) - len(layers)} more (--top {len(comparison.layers)} shows them)", style="dim"
        )
    if comparison.note:
        out.print(f"no per-layer results of the device: {clean(comparison.note)}", style="yellow", soft_wrap=True)
    if not comparison.modules_to_raise():
        _show_none(comparison)
        return
    out.print(f"\n{_advice(comparison)}", style="bold", soft_wrap=True)
    for line in recipe.splitlines():
        out.print(f"  {clean(line)}" if line else "", soft_wrap=True)
    path = args.write_recipe or "r.toml"
    words = ["--target", comparison.target, "--recipe", path, *same_options(args, *DATA_OPTIONS), "-o", "m.pte"]
    after = shlex.join(["edgewright", "compile", args.spec, *words])
    where = f"wrote {path}; compile with" if args.write_recipe else f"save it with --write-recipe {path}, then"
    out.print(f"\n{clean(where)}: {clean(after)}", soft_wrap=True)


def _advice(comparison: Comparison) -> str:
    modules = comparison.modules_to_raise()
    part = share(sum(layer.share for layer in comparison.layers if layer.module in modules))
    precision = "16 bits" if comparison.higher != "float" else "floating point (this target has no 16-bit integers)"
    device = ""
    if comparison.raised_device is not None and comparison.device is not None:
        device = f" ({comparison.device:.1f} and {comparison.raised_device:.1f} dB on {comparison.target})"
    after = f"{comparison.fake:.1f} dB become {comparison.raised:.1f} dB{device}, {comparison.measured_on}"
    return f"raise {', '.join(map(clean, modules))} ({part} of the error) to {precision}: {after}"


def _show_none(comparison: Comparison) -> None:
    out = console()
    if not comparison.tried:
        out.print("\nnothing to raise: no layer introduces an error that reaches the output", style="green")
        return
    out.print(
        f"\nnothing helps: {comparison.fake:.1f} dB {comparison.measured_on}, but", style="yellow", soft_wrap=True
    )
    for attempt in comparison.tried:
        device = "" if attempt.device is None else f", {attempt.device:.1f} dB on {comparison.target}"
        line = f"  {attempt.fake:.1f} dB{device} with {', '.join(map(clean, attempt.modules))} raised"
        out.print(line, style="yellow", soft_wrap=True)


def _row(layer: LayerError) -> tuple[str, ...]:
    name = layer.module or layer.name
    return (
        name,
        layer.operator,
        _decibels(layer.introduced),
        _decibels(layer.effect),
        share(layer.share),
        _decibels(layer.fake),
        "" if layer.device is None else _decibels(layer.device),
    )


def _decibels(value: float) -> str:
    return "exact" if value >= 200 else f"{value:.1f}"
