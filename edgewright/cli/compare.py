"""``edgewright compare``: which layers quantization hurts, and what to raise to 16 bit."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from edgewright.cli import bench_options
from edgewright.cli.bench_options import SPEC, chosen_targets, make_bench, quiet_imports
from edgewright.cli.console import clean, console, plural, table
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.units import share
from edgewright.workbench.progress import Stages

if TYPE_CHECKING:
    from edgewright.workbench.compare import Comparison, LayerError

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
    bench_options.add_arguments(parser)
    add = parser.add_argument
    add("--evaluate", type=int, default=_EVALUATED, metavar="N", help=f"measure on N inputs (default: {_EVALUATED})")
    add("--no-device", action="store_true", help="leave out what the device computes: faster")
    add("--top", type=int, default=_TOP, metavar="N", help=f"show the N worst layers (default: {_TOP})")
    add("--write-recipe", metavar="r.toml", help="write the recipe that raises the worst layers")
    add("--json", action="store_true", help="every layer, as JSON")


def run(args: argparse.Namespace) -> int:
    targets = chosen_targets(args)
    if len(targets) > 1:
        raise UsageError("--target", "must be one: layers are ranked for a device", value=len(targets))
    if args.quantize is None and args.recipe is None:
        raise UsageError("--quantize", "must be given: a model in floating point has nothing to compare")
    if args.evaluate < 1:
        raise UsageError("--evaluate", "must be 1 or more", value=args.evaluate)
    with Stages(args.quiet) as stages, quiet_imports():
        bench = make_bench(args, stages, evaluate=args.evaluate)
        from edgewright.workbench.compare import compare
        from edgewright.workbench.quantization import quiet_warnings

        with quiet_warnings():
            found = compare(bench, targets[0], device=not args.no_device)
    recipe = found.recipe(bench.settings.recipe)
    if args.write_recipe:
        write_file(args.write_recipe, [recipe.to_toml().encode()])
    if args.json:
        print(json.dumps(found.to_dict(), indent=2))
    elif not args.quiet:
        _show(args, found, recipe.to_toml())
    return 0


def _show(args: argparse.Namespace, found: Comparison, recipe: str) -> None:
    out = console()
    device = "" if found.device is None else f", {found.device:.1f} dB as {found.target} computes it"
    told = f"{found.target}, {found.precision}, {plural(found.samples, 'input')}: the model's output has"
    out.print(f"{told} {found.fake:.1f} dB fake-quantized{device}", style="bold", soft_wrap=True)
    shown = found.layers[: args.top]
    heads = ("layer", "operators", ">adds", ">output", ">share", ">fake", ">device")
    title = "layers by the error each introduces (SQNR in dB)"
    out.print(table(title, heads, [_row(layer) for layer in shown], flexible="layer", tight=True))
    if len(found.layers) > len(shown):
        out.print(f"{len(found.layers) - len(shown)} more (--top {len(found.layers)} shows them)", style="dim")
    if found.note:
        out.print(f"no layers of the device: {clean(found.note)}", style="yellow", soft_wrap=True)
    chosen = found.to_raise()
    if not chosen:
        out.print("\nnothing to raise: no layer adds an error that reaches the output", style="green")
        return
    part = share(sum(layer.share for layer in chosen))
    way = "16 bits" if found.higher != "float" else "floating point, for this target has no 16 bits"
    after = "" if found.raised is None else f": {found.fake:.1f} dB become {found.raised:.1f} dB"
    told = f"\nraise {_names(chosen)} ({part} of the error), with what reads them, to {way}{after}"
    out.print(told, style="bold", soft_wrap=True)
    for line in recipe.splitlines():
        out.print(f"  {clean(line)}" if line else "", soft_wrap=True)
    path = args.write_recipe or "r.toml"
    after = f"edgewright compile {args.spec} --target {found.target} --recipe {path} --calibrate ... -o m.pte"
    where = f"wrote {path}; compile with" if args.write_recipe else f"save it with --write-recipe {path}, then"
    out.print(f"\n{clean(where)}: {clean(after)}", soft_wrap=True)


def _names(chosen: list[LayerError]) -> str:
    return ", ".join(clean(layer.module) for layer in chosen)


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
