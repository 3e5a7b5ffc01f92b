"""``edgewright search``: the precision of each layer for a device, within limits of accuracy, time and size."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from edgewright.api.progress import Stages
from edgewright.cli import model_options
from edgewright.cli.model_options import SPEC, make_session, model_name, need_torch, quiet_imports, selected_targets
from edgewright.console import clean, console, note, rate_bar, table
from edgewright.errors import AccuracyError, FileAccessError, LimitError, UsageError
from edgewright.explore.store import Store
from edgewright.files import check_writable
from edgewright.units import duration, parse_size, share, size

if TYPE_CHECKING:
    from edgewright.explore.goal import Findings, Goal, Point
    from edgewright.explore.search import Progress
    from edgewright.explore.search_task import Task

EXAMPLES = """examples:
  edgewright search net:Net --target ethos-u55-128 --calibrate calib.npz --metric metrics:accuracy --max-drop 0.5%
  edgewright search net:Net --target sm8550 --calibrate calib.npz --min-sqnr 40 --max-latency 5ms -o results/
  edgewright search --resume results/ --budget 10min
  edgewright search --show results/ --html
  edgewright compile net:Net --target sm8550 --calibrate calib.npz --recipe results/best.toml -o m.pte
"""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s|min|h)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("spec", nargs="?", metavar="SPEC", help=SPEC)
    add(
        "--target", action="append", default=[], metavar="ethos-u55-128",
        help="the device to search for (see `edgewright targets`)",
    )  # fmt: skip
    add(
        "--calibrate", metavar="SOURCE",
        help="calibration inputs: an .npz, a folder of images or arrays, or package.module:iterable",
    )  # fmt: skip
    model_options.add_data_arguments(parser)
    model_options.add_evaluate(parser, 8)
    add("--metric", metavar="mod:fn", help="a function from a callable model to a number")
    add("--better", choices=("higher", "lower"), help="which metric is better (default: higher)")
    add("--max-drop", metavar="0.5%", help="how much worse than the original's the metric may be (default: 1%%)")
    add("--min-sqnr", type=float, metavar="dB", help="without a metric: the least SQNR of a result (default: 30)")
    add("--max-latency", type=_milliseconds, metavar="5ms", help="the most time of an inference")
    add("--max-size", type=_bytes, metavar="2MiB", help="the largest file")
    add("--minimize", choices=("latency", "size"), help="what to make small within the limits (default: latency)")
    add("--precision", action="append", metavar="int8", help="choose from these presets only; repeatable")
    add(
        "--methods", metavar="best",
        help="of better rounding, if they gain: best tries which; names, as adaround+bias; or none (default: headroom "
        "of 16-bit activations, and adaround if nothing quantized is accurate)",
    )  # fmt: skip
    add("--budget", type=_seconds, metavar="10min", help="start no program that would end later than this")
    add("--trials", type=int, metavar="N", help="compile at most N programs (default: 16)")
    add("--seed", type=int, metavar="N", help="of the calibration inputs that errors are measured on (default: 0)")
    add("-o", "--output", metavar="results/", help="the folder of the results (default: MODEL-TARGET-search)")
    add("--resume", metavar="results/", help="continue a search that was stopped")
    add("--show", metavar="results/", help="show the results, also while the search runs")
    add("--html", nargs="?", const="", metavar="FILE", help="write one page (default: search.html in the folder)")
    add("--json", action="store_true", help="print the results as JSON")
    add("--workers", type=int, metavar="N", help="processes on this machine (default: one per core)")
    add("--scheduler", metavar="ADDRESS", help="run on the Dask cluster of this scheduler")


def _seconds(text: str) -> float:
    """
    >>> _seconds("10min"), _seconds("90 s"), _seconds("5ms")
    (600.0, 90.0, 0.005)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"must be a number and a unit (us, ms, s, min, h), such as 5ms; got {text}")
    return float(match[1]) * _SECONDS[match[2]]


def _milliseconds(text: str) -> float:
    return _seconds(text) * 1e3


def _bytes(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    if args.show:
        with Store(args.show, command="search") as store:
            _show(args, store, _stored_task(store))
        return 0
    folder = args.resume or args.output or _default_folder(args)
    with Store(folder, create=not args.resume, command="search") as store:
        store.lock()
        task = _stored_task(store) if args.resume else _new_task(args, store)
        found = _run(args, store, task)
        if not args.quiet or args.json:
            _show(args, store, task, found)
        _require_limits(task, found)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    ways = [name for name in ("spec", "resume", "show") if getattr(args, name)]
    if len(ways) != 1:
        rule = "takes one of: a model, --resume FOLDER, --show FOLDER"
        raise UsageError("search", rule, value=" and ".join(ways) or "nothing")
    if not args.spec:
        given = [n for n in ("target", "calibrate", "metric", "max_drop", "min_sqnr", "max_latency", "max_size",
                             "minimize", "precision", "recipe", "methods", "output", "trials", "seed", "evaluate",
                             "better", "samples", "mean", "std") if getattr(args, n) not in (None, [])]  # fmt: skip
        if given:
            rule = f"is of a new search, and --{ways[0]} has its own"
            raise UsageError(f"--{given[0].replace('_', '-')}", rule)
    elif not args.calibrate:
        remedy = "A hundred inputs are enough; some are held out to measure on."
        raise UsageError("--calibrate", "is required: inputs to calibrate with and to measure on", remedy=remedy)
    for name in ("workers", "trials"):
        count = getattr(args, name)
        if count is not None and count < 1:
            raise UsageError(f"--{name}", "must be 1 or more", value=count)
    if args.workers is not None and args.scheduler:
        raise UsageError("--workers", "is for this machine: a scheduler has workers of its own")
    if args.html:
        check_writable(args.html)
    if args.output:
        check_writable(args.output, folder=True)


def _default_folder(args: argparse.Namespace) -> str:
    (target,) = _one_target(args)
    return f"{model_name(args.spec)}-{target.name}-search"


def _one_target(args: argparse.Namespace) -> list[Any]:
    targets = selected_targets(args)
    if len(targets) > 1:
        raise UsageError("--target", "must be a single device: a recipe is for one", value=len(targets))
    return targets


# ---------------------------------------------------------------------------------------------------------------- run


def _new_task(args: argparse.Namespace, store: Store) -> Task:
    """Check the call, load the model and its data, and store both."""
    with Stages(args.quiet) as stages, quiet_imports():
        need_torch()
        from edgewright.api.compile_report import EVALUATED
        from edgewright.api.quantization import quiet_warnings
        from edgewright.api.recipe import as_recipe
        from edgewright.backends import find_quantizer
        from edgewright.explore.precision_search import Request, prepare

        _find_modules()
        (target,) = _one_target(args)
        given = {
            "metric": args.metric, "max_drop": args.max_drop, "min_sqnr": args.min_sqnr, "better": args.better,
            "minimize": args.minimize, "max_latency": args.max_latency, "max_size": args.max_size,
            "precisions": None if args.precision is None else tuple(args.precision), "seed": args.seed,
            "trials": args.trials, "methods": args.methods,
        }  # fmt: skip
        request = Request(**{name: value for name, value in given.items() if value is not None})
        request.check()
        fixed = as_recipe(args.recipe, None).for_target(target.name)
        args.quantize = next(iter(find_quantizer(target.backend).presets))
        evaluate = EVALUATED if args.evaluate is None else args.evaluate
        with quiet_warnings():
            session = make_session(args, stages, evaluate=evaluate)
            name = model_name(args.spec)
            task, _ = prepare(session, target, store, request, name=name, spec=args.spec, fixed=fixed)
    store.set_meta("imports", "\n".join(args.imports))
    store.set_meta("options", _data_options(args))
    return task


def _find_modules() -> None:
    if os.getcwd() not in sys.path:  # models and metrics are looked up there, by workers of this machine as well
        sys.path.insert(0, os.getcwd())


def _data_options(args: argparse.Namespace) -> str:
    """The options that ``compile`` needs to make the same program."""
    parts = [args.spec, "--calibrate", args.calibrate]
    for name in ("samples", "mean", "std", "evaluate"):
        value = getattr(args, name)
        if value is not None:
            parts += [f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    import shlex

    return shlex.join(parts)


def _stored_task(store: Store) -> Task:
    from edgewright.explore.search_task import Task

    text = store.meta("search")
    if not text:
        remedy = "`edgewright sweep --show` shows sweeps; `edgewright search MODEL -o FOLDER` starts a search."
        raise FileAccessError(os.fspath(store.folder), "must be the folder of a search", remedy=remedy)
    return Task.from_json(text)


def _run(args: argparse.Namespace, store: Store, task: Task) -> Findings:
    with quiet_imports():
        need_torch()
    from edgewright.explore.cluster import connect
    from edgewright.explore.search import Search

    _find_modules()
    with connect(args.scheduler, args.workers) as cluster:
        if not args.quiet:
            note(f"results in {store.folder}/; dashboard: {cluster.client.dashboard_link}")
        with rate_bar("search", task.trials, quiet=args.quiet) as step:
            done = 0

            def report(progress: Progress) -> None:
                nonlocal done
                step.describe(f"search: {_so_far(task.goal, progress.found)}")
                while done < progress.done:
                    done += 1
                    step()

            imports = store.meta("imports").split()
            return Search(task, store, cluster, report, budget=args.budget, imports=imports).run()


def _so_far(goal: Goal, found: Findings) -> str:
    best = found.best
    if best is None:
        return "no program yet"
    return f"{_score(best)} {'dB ' if goal.original is None else ''}in {_time(best)}, {size(best.bytes)}"


def _require_limits(task: Task, found: Findings) -> None:
    from edgewright.explore.goal import unmet

    lines = unmet(task.goal, found)
    if lines:
        accurate = any(map(task.goal.is_accurate, found.points))
        raise (LimitError if accurate else AccuracyError)(
            f"search for {task.row.target}", "; ".join(lines),
            remedy=f"best.toml in the folder is the nearest: {found.best.name if found.best else ''}.",
        )  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- show


def _show(args: argparse.Namespace, store: Store, task: Task, found: Findings | None = None) -> None:
    from edgewright.explore.goal import findings

    found = found or findings(task.goal, store.plan(), store.outcomes())
    written = None
    if args.html is not None:
        from edgewright.explore.page import write_search_page

        path = args.html or os.fspath(store.folder / "search.html")
        written = path, write_search_page(store, task, found, path)
    if args.json:
        import json

        from edgewright.explore.search_task import to_dict

        print(json.dumps(to_dict(task, found), indent=2, allow_nan=False))
        return
    _print(store, task, found)
    if written is not None:
        console().print(f"wrote {clean(written[0])} ({size(written[1])})", style="green", soft_wrap=True)


def _print(store: Store, task: Task, found: Findings) -> None:
    out, goal = console(), task.goal
    out.print(_headline(task), style="bold", soft_wrap=True)
    points = sorted((p for p in found.points if p.pareto or p.best), key=lambda p: (p.milliseconds or 0.0, p.bytes))
    heads = ("", "precision", ">delegated", ">file", ">RAM", ">time", f">{goal.score_name}", "limits")
    rows = [[Text(cell, style="bold green" if p.best else "") for cell in _cells(p)] for p in points]
    out.print(table("", heads, rows, flexible="precision", tight=True))
    others = len(found.points) - len(points)
    text = "*: the best; no program here is beaten in size, time and score at once"
    out.print(f"{text}{f', as {others} others are' if others else ''}", style="dim", soft_wrap=True)
    out.print(f"time: {clean(found.basis)}", style="dim", soft_wrap=True)
    for failure in found.failures:
        out.print(f"\n{clean(failure.name)}: {failure.status}:", style="bold", soft_wrap=True)
        for line in (*failure.error.splitlines(), *failure.traceback.splitlines()):
            out.print(f"  {clean(line)}", style="red", soft_wrap=True)
    if advice := _advice(task, found):
        out.print(f"\n{advice}", soft_wrap=True)
    best = found.best
    if best is not None:
        path = Path(store.folder) / "best.toml"
        command = f"edgewright compile {store.meta('options')} --target {task.row.target} --recipe {path} -o m.pte"
        out.print(f"\nwrote {clean(path)} and best.pte; the same again: {clean(command)}", soft_wrap=True)


def _advice(task: Task, found: Findings) -> str:
    """What may need fewer layers on the CPU, if the best has more than other programs."""
    from edgewright.explore.search_task import AUTOMATIC_METHODS, NO_METHODS

    best, decided = found.best, task.methods not in (AUTOMATIC_METHODS, NO_METHODS)
    if best is None or decided or best.delegated_macs >= max(p.delegated_macs for p in found.points):
        return ""
    layers = share(1 - best.delegated_macs)
    return f"the CPU computes {layers} of the best: --methods best tries to round better, and may need less of it"


def _headline(task: Task) -> str:
    goal = task.goal
    score = (
        f"SQNR of {goal.score_limit:g} dB or more"
        if goal.original is None
        else f"metric of {goal.score_limit:.6g} or {'less' if goal.lower else 'more'} (original: {goal.original:.6g})"
    )
    limits = [score]
    if goal.latency is not None:
        limits.append(f"{duration(goal.latency / 1e3)} or less")
    if goal.size is not None:
        limits.append(f"{size(goal.size)} or less")
    kind = "smallest" if goal.smallest else "fastest"
    return f"{task.row.model} on {task.row.target}: the {kind} with {', '.join(limits)}"


def _cells(point: Point) -> list[str]:
    return [
        "*" if point.best else "", clean(point.name), share(point.delegated_macs), size(point.bytes),
        size(point.planned_bytes), _time(point), _score(point), "within" if point.within_limits else "not met",
    ]  # fmt: skip


def _time(point: Point) -> str:
    return "" if point.milliseconds is None else duration(point.milliseconds / 1e3)


def _score(point: Point) -> str:
    if point.score is None:
        return ""
    return f"{point.score:.1f}" if point.metric is None else f"{point.score:.6g}"
