"""Precision search beside other quantizers, for five targets: ``python -m benchmarks.search``.

For each network and target, on the same data: Edgewright's ``int8``, ``int8-best`` and precision search; ExecuTorch's
quantizer with torchao's PT2E flow; NNCF's post-training quantization, and its accuracy control on the CPU. Programs of
all of them are compiled by Edgewright for the target, except those of accuracy control, which run in OpenVINO.

A search minimizes time with at least ``LIMITS`` decibels on the images to choose by; the file for XNNPACK, because
times are measured, and for Silero VAD, because Exynos has floating point, which is faster. Figures are of the images
to report on. ``CPU s`` is of this process, on one thread.

Each result is a line of ``--results`` as soon as it is measured, and is not measured again; the committed file has the
lines of the table in docs/explore.md, which ``--write-table`` writes. ``--time`` measures the programs for XNNPACK on
this machine, in interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgewright as ew
from benchmarks import search_peers
from benchmarks.search_models import NETWORKS, Network, classes
from edgewright.explore.cost import time_of
from edgewright.explore.store import Store, figures_of
from edgewright.quantize.evaluate import Sqnr
from edgewright.units import duration, size

TARGETS = ("xnnpack", "ethos-u55-128", "sm8650", "e9955", "imxrt700")
LIMITS = {
    "cifarnet": 40.0,
    "mobilenet_v2": 40.0,
    "mobilenet_v3": 30.0,
    "efficientnet_lite0": 30.0,
    "silero_vad": 20.0,
}  # decibels
SMALLEST = ("silero_vad",)  # networks whose searches are for the smallest file on every device
FLOWS = ("int8", "int8-best", "stock", "nncf", "nncf-minmax", "nncf-control", "search")
MAX_DROP = 0.01  # of the share of right answers, for NNCF's accuracy control
RESULTS = Path(__file__).with_name("search_results.jsonl")
FILES = Path("build") / "search"  # what was compiled, for ``--time``
Model = Callable[[torch.Tensor], torch.Tensor]
Cell = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--flows", nargs="+", default=list(FLOWS), choices=FLOWS)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--methods", default="", help="of the search: best, or names")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write-table", action="store_true")
    parser.add_argument("--time", action="store_true")
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.time:
        measure_times(args.results)
    elif args.write_table:
        write_table(read(args.results))
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    done = {(cell["model"], cell["target"], cell["cell"]) for cell in read(args.results)}
    for name in args.models:
        wanted = [(t, f) for t in args.targets for f in args.flows if f != "nncf-control" or t == "xnnpack"]
        missing = [pair for pair in wanted if (name, *pair) not in done]
        network = NETWORKS[name]() if missing else None
        for target, flow in missing:
            assert network is not None
            head = {"model": name, "target": target, "cell": flow}
            lines = [json.dumps({**head, **cell}) + "\n" for cell in measure(name, network, target, flow, args)]
            with open(args.results, "a", encoding="utf-8") as file:
                file.write("".join(lines))  # at once: a cell is there or not


def read(path: Path) -> list[Cell]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# -------------------------------------------------------------------------------------------------------------- cells


def measure(name: str, network: Network, target: str, flow: str, args: argparse.Namespace) -> Iterator[Cell]:
    """The lines of a cell; of a search, one for each program in one precision, too."""
    folder = FILES / f"{name}-{target}"
    folder.mkdir(parents=True, exist_ok=True)
    start = time.process_time()
    try:
        if flow == "search":
            yield from _search(name, network, target, args.trials, args.methods, folder)
        elif flow == "nncf-control":
            model, note = search_peers.nncf_control(network, MAX_DROP, folder)
            yield {"flow": flow, "note": note, "cpu_s": time.process_time() - start, **scores(network, model)}
        else:
            yield _compiled(network, target, flow, folder)
    except Exception as error:  # of other packages, whatever they raise
        if not (flow.startswith(("stock", "nncf")) or isinstance(error, ew.errors.EdgewrightError)):
            raise
        yield {"flow": flow, "error": f"{type(error).__name__}: {error}"[:300]}


def _compiled(network: Network, target: str, flow: str, folder: Path) -> Cell:
    options: dict[str, Any] = {"evaluate": network.choice.inputs[:2], "quiet": True}
    start = time.process_time()
    if flow in ("stock", "nncf", "nncf-minmax"):
        quantized = getattr(search_peers, flow.replace("-", "_"))(network, target)
        exported, original = (torch.export.export(m, network.example) for m in (quantized, network.model))
        result = ew.compile(exported, None, target, original=original, **options)
        note = ""
    else:
        result = ew.compile(
            network.model, network.example, target, quantize=flow, calibration=network.calibration,
            samples=len(network.calibration), **options,
        )  # fmt: skip
        note = [trial.precision for trial in result.report.trials if trial.kept][-1] if result.report.trials else ""
    seconds = time.process_time() - start
    figures = figures_of(result.report.to_dict())
    files = folder / f"{flow}.pte"
    result.save(files)
    return {
        "flow": flow, "note": note, "cpu_s": seconds, "milliseconds": time_of(figures), "bytes": figures["bytes"],
        "delegated": figures["coverage"], "pte": str(files.relative_to(FILES)), **scores(network, program(files)),
    }  # fmt: skip


def _search(name: str, network: Network, target: str, trials: int, methods: str, folder: Path) -> Iterator[Cell]:
    limit, smallest = LIMITS[name], target == "xnnpack" or name in SMALLEST
    start = time.process_time()
    found = ew.search(
        network.model, network.example, target, calibration=network.calibration, samples=len(network.calibration),
        evaluate=network.choice.inputs, min_sqnr=limit, minimize="size" if smallest else "latency",
        methods=methods, trials=trials, output=folder / "search", quiet=True,
    )  # fmt: skip
    seconds = time.process_time() - start
    with Store(folder / "search") as store:
        for point in found.points:
            is_uniform = "," not in point.name
            if not (point.best or is_uniform):
                continue
            path = folder / f"{'search' if point.best else point.name}.pte"
            path.write_bytes(store.get(point.pte))
            if point.twin:
                path.with_suffix(".twin").write_bytes(store.get(point.twin))
            cell = {
                "note": point.name, "milliseconds": point.milliseconds, "bytes": point.bytes,
                "delegated": point.delegated_macs, "pte": str(path.relative_to(FILES)),
                **scores(network, program(path)),
            }  # fmt: skip
            if point.best:
                more = {"cpu_s": seconds, "programs": len(found.points), "unmet": found.unmet}
                yield {"flow": "search", "limit": limit, "choice_sqnr": point.sqnr, **more, **cell}
            if is_uniform and point.name != "int8":
                yield {"flow": point.name, **cell}


def program(path: Path) -> Model:
    """A compiled program, on this machine."""
    from edgewright.runtime import Runtime

    twin = path.with_suffix(".twin")
    method = Runtime.get().load_program(path, twin=twin if twin.exists() else None).load_method("forward")

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.array(method.execute([x.numpy()])[0]))

    return run


def scores(network: Network, model: Model) -> Cell:
    """The SQNR of a model, how often its class is the float model's, and how often it is right."""
    with torch.no_grad():
        actual = torch.cat([model(x) for x in network.report.inputs])
    meter, labels = Sqnr(), network.report.labels
    meter.add(network.expected.numpy(), actual.numpy())
    found, expected, counted = classes(actual), classes(network.expected), labels >= 0
    shares = {"same": found == expected, "right": (found == labels)[counted],
              "float_right": (expected == labels)[counted]}  # fmt: skip
    return {"sqnr": meter.decibels, **{name: float(np.mean(part)) for name, part in shares.items()}, **network.counts}


# -------------------------------------------------------------------------------------------------------------- times


def measure_times(results: Path, rounds: int = 40) -> None:
    """Milliseconds of every program for XNNPACK, and of OpenVINO's: the minimum of interleaved rounds."""
    cells = [cell for cell in read(results) if cell["target"] == "xnnpack" and "error" not in cell]
    for name in dict.fromkeys(cell["model"] for cell in cells):
        x = NETWORKS[name]().example[0]
        folder = FILES / f"{name}-xnnpack"
        models = {c["flow"]: program(FILES / c["pte"]) for c in cells if c["model"] == name and "pte" in c}
        if (folder / "nncf-control.xml").exists():
            models["nncf-control"] = _openvino(folder / "nncf-control.xml")
        times: dict[str, float] = dict.fromkeys(models, math.inf)
        for _ in range(rounds):
            for flow, model in models.items():
                start = time.perf_counter()
                model(x)
                times[flow] = min(times[flow], 1e3 * (time.perf_counter() - start))
        with open(results, "a", encoding="utf-8") as file:
            line = {"model": name, "target": "xnnpack", "cell": "times", "flow": "times", "times": times}
            file.write(json.dumps(line) + "\n")


def _openvino(path: Path) -> Model:
    import openvino

    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1})
    return lambda x: torch.from_numpy(next(iter(compiled(x.numpy()).values())))


# -------------------------------------------------------------------------------------------------------------- table


DOCS = Path(__file__).parent.parent / "docs" / "explore.md"
MARKS = ("<!-- benchmarks/search.py -->\n", "<!-- end -->\n")
COLUMNS = {
    "`int8`": ("int8",), "`int8-best`": ("int8-best",), "ExecuTorch": ("stock",), "NNCF": ("nncf", "nncf-minmax"),
    "NNCF, accuracy control": ("nncf-control",), "search": ("search",),
}  # fmt: skip


def write_table(cells: list[Cell]) -> None:
    """Replace the table of the documentation, and print what it says about Pareto points and the time of a search."""
    text = DOCS.read_text()
    before, rest = text.split(MARKS[0])
    programs = merged(cells)
    pairs = dict.fromkeys((cell["model"], cell["target"]) for cell in programs)
    head = f"| network, device | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}\n"
    rows = [_row(pair, [c for c in programs if (c["model"], c["target"]) == pair]) for pair in pairs]
    DOCS.write_text(before + MARKS[0] + head + "".join(rows) + MARKS[1] + rest.split(MARKS[1])[1])
    for line in (*beaten(programs), *ratios(programs)):
        print(line)


def merged(cells: list[Cell]) -> list[Cell]:
    """The programs, in the order of the table, with the times that were measured on this machine."""
    times = {cell["model"]: cell["times"] for cell in cells if cell["flow"] == "times"}
    programs = [
        {**cell, "milliseconds": times.get(cell["model"], {}).get(cell["flow"])}
        if cell["target"] == "xnnpack"
        else cell
        for cell in cells
        if cell["flow"] != "times"
    ]
    return sorted(programs, key=lambda cell: (list(NETWORKS).index(cell["model"]), TARGETS.index(cell["target"])))


def _row(pair: tuple[str, str], cells: list[Cell]) -> str:
    entries = []
    for flows in COLUMNS.values():
        found = [cell for cell in cells if cell["flow"] in flows]
        best = max((c for c in found if "error" not in c), key=lambda c: float(c["sqnr"]), default=None)
        entries.append(_entry(best) if best is not None else "failed" if found else "")
    return f"| {pair[0]}, `{pair[1]}` | {' | '.join(entries)} |\n"


def _entry(cell: Cell) -> str:
    parts = [f"{cell['sqnr']:.1f} dB", f"{cell['same']:.1%}", f"{cell['right']:.1%}"]
    if cell.get("milliseconds") is not None:
        parts.append(duration(cell["milliseconds"] / 1e3))
    if "bytes" in cell and cell["flow"] in ("int8", "search"):
        parts.append(size(cell["bytes"]))
    note = cell.get("note", "").removeprefix("int8+") if cell["flow"] != "nncf" else ""
    return ", ".join(parts) + (f" ({note})" if note else "")


def beaten(cells: list[Cell]) -> Iterator[str]:
    """For each search, the programs that are at least as good in time, file and SQNR, and better in one."""
    for found in (cell for cell in cells if cell["flow"] == "search" and "error" not in cell):
        others = [c for c in cells if (c["model"], c["target"]) == (found["model"], found["target"]) and "bytes" in c]
        better = [c["flow"] for c in others if c is not found and _beats(c, found)]
        yield f"{found['model']} on {found['target']}: beaten by {', '.join(better) or 'none'}"


def _beats(one: Cell, other: Cell) -> bool:
    pairs = [(cell.get("milliseconds") or 0.0, cell["bytes"], -cell["sqnr"]) for cell in (one, other)]
    return all(a <= b for a, b in zip(*pairs, strict=True)) and pairs[0] != pairs[1]


def ratios(cells: list[Cell]) -> Iterator[str]:
    """What a search takes, in compilations with ``int8``."""
    compiled = {(c["model"], c["target"]): c["cpu_s"] for c in cells if c["flow"] == "int8" and "cpu_s" in c}
    for cell in cells:
        pair = cell["model"], cell["target"]
        if cell["flow"] == "search" and "cpu_s" in cell and pair in compiled:
            took = f"{cell['programs']} programs in {cell['cpu_s']:.0f} CPU s"
            yield f"{pair[0]} on {pair[1]}: {took}, {cell['cpu_s'] / compiled[pair]:.1f} compilations"


if __name__ == "__main__":
    main()
