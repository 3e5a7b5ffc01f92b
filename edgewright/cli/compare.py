"""``edgewright compare``: layers ranked by quantization error, and which to raise to 16 bits."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from edgewright.api.progress import Stages
from edgewright.cli import model_options
from edgewright.cli.model_options import SPEC, chosen_targets, make_session, quiet_imports
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
_EVALUATED = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help=SPEC)
    model_options.add_arguments(parser)
    add = parser.add_argument
    model_options.add_evaluate(parser, _EVALUATED)
    add("--no-device", action="store_true", help="skip the device run (faster)")
    add("--top", type=int, default=_TOP, metavar="N", help=f"show the N worst layers (default: {_TOP})")
    add("--write-recipe", metavar="r.toml", help="write a recipe that raises the recommended modules")
    add("--json", action="store_true", help="print every layer as JSON")


def run(args: argparse.Namespace) -> int:
    targets = chosen_targets(args)
    if len(targets) > 1:
        raise UsageError("--target", "must be a single device: layers are ranked per device", value=len(targets))
    if args.quantize is None and args.recipe is None:
        raise UsageError("--quantize", "is required: a floating-point model has no quantization error")
    evaluate = _EVALUATED if args.evaluate is None else args.evaluate
    if isinstance(evaluate, int) and evaluate < 1:
        raise UsageError("--evaluate", "must be 1 or more", value=evaluate)
    with Stages(args.quiet) as stages, quiet_imports():
        session = make_session(args, stages, evaluate=evaluate)
        from edgewright.api.compare import compare
        from edgewright.api.quantization import quiet_warnings

        with quiet_warnings():
            found = compare(session, targets[0], device=not args.no_device)
    recipe = found.recipe(session.settings.recipe)
    if args.write_recipe:
        write_file(args.write_recipe, [recipe.to_toml().encode()])
    if args.json:
        print(json.dumps(found.to_dict(), indent=2))
    elif not args.quiet:
        _show(args, found, recipe.to_toml())
    return 0


def _show(args: argparse.Namespace, found: Comparison, recipe: str) -> None:
    out = console()
    device = "" if found.device is None else f", {found.device:.1f} dB on {found.target}"
    headline = f"{found.target}, {found.precision}: output SQNR {found.fake:.1f} dB fake-quantized{device}"
    out.print(f"{headline}, {found.measured_on}", style="bold", soft_wrap=True)
    shown = found.layers[: args.top]
    heads = ("layer", "operators", ">adds", ">output", ">share", ">fake", ">device")
    title = "layers by the error each introduces (SQNR in dB)"
    out.print(table(title, heads, [_row(layer) for layer in shown], flexible="layer", tight=True))
    if len(found.layers) > len(shown):
        out.print(f"{len(found.layers) - len(shown)} more (--top {len(found.layers)} shows them)", style="dim")
    if found.note:
        out.print(f"no per-layer results of the device: {clean(found.note)}", style="yellow", soft_wrap=True)
    if not found.modules_to_raise():
        _show_none(found)
        return
    out.print(f"\n{_advice(found)}", style="bold", soft_wrap=True)
    for line in recipe.splitlines():
        out.print(f"  {clean(line)}" if line else "", soft_wrap=True)
    path = args.write_recipe or "r.toml"
    after = f"edgewright compile {args.spec} --target {found.target} --recipe {path} --calibrate ... -o m.pte"
    where = f"wrote {path}; compile with" if args.write_recipe else f"save it with --write-recipe {path}, then"
    out.print(f"\n{clean(where)}: {clean(after)}", soft_wrap=True)


def _advice(found: Comparison) -> str:
    chosen = found.modules_to_raise()
    part = share(sum(layer.share for layer in found.layers if layer.module in chosen))
    precision = "16 bits" if found.higher != "float" else "floating point (this target has no 16-bit integers)"
    device = ""
    if found.raised_device is not None and found.device is not None:
        device = f" ({found.device:.1f} and {found.raised_device:.1f} dB on {found.target})"
    after = f"{found.fake:.1f} dB become {found.raised:.1f} dB{device}, {found.measured_on}"
    return f"raise {', '.join(map(clean, chosen))} ({part} of the error) to {precision}: {after}"


def _show_none(found: Comparison) -> None:
    out = console()
    if not found.tried:
        out.print("\nnothing to raise: no layer introduces an error that reaches the output", style="green")
        return
    out.print(f"\nnothing helps: {found.fake:.1f} dB {found.measured_on}, but", style="yellow", soft_wrap=True)
    for attempt in found.tried:
        device = "" if attempt.device is None else f", {attempt.device:.1f} dB on {found.target}"
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
