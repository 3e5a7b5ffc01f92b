#!/usr/bin/env python
"""Digests of everything that a refactoring must not change.

``python tools/freeze.py write FILE``     compute and keep them
``python tools/freeze.py compare FILE``   compute them again, and list what changed; exit 1 if anything did

Digests of: ``.pte`` files (with the host twins inside) of the op table's samples and of eight networks for all five
backends in float and int8; the step labels of execution plans and the text of their kernels for random device graphs in
every dialect; ``--help`` of every command; the names that the packages offer. ``--only PREFIX`` selects, ``--jobs``
divides the work. Kernel names hash a description of the kernel, and may change; the text may not.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import multiprocessing
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

TARGETS = {
    "xnnpack": "xnnpack", "ethos_u": "ethos-u55-128", "qualcomm": "sm8650", "samsung": "e9955", "nxp": "imxrt700",
}  # fmt: skip
GRAPHS = 60  # of each dialect
Digests = dict[str, str]


def digest(*parts: bytes | str) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:16]


def operators(backend: str) -> Digests:
    """Each operator of the table that has samples in single precision, compiled alone."""
    from edgewright.ir.aten.ops import OPS
    from tests.support.rows import One, samples

    found: Digests = {}
    for op in sorted(OPS):
        for at, call in enumerate(samples(op, most=2)):
            module = One(call).eval()
            for precision in (None, "int8"):
                found[f"operators/{backend}/{op}/{at}/{precision or 'float'}"] = _compiled(
                    module, (module.first,), backend, precision
                )
    return found


def networks(name: str) -> Digests:
    import torch

    from tests.program.networks import MODELS

    found: Digests = {}
    for backend in TARGETS:
        for precision in (None, "int8"):
            torch.manual_seed(0)
            module, inputs = MODELS[name]()
            found[f"networks/{name}/{backend}/{precision or 'float'}"] = _compiled(module, inputs, backend, precision)
    return found


def _compiled(module: Any, inputs: Any, backend: str, precision: str | None) -> str:
    """The digest of a file, or of the error without the path of this checkout."""
    import edgewright as ew
    from edgewright.errors import EdgewrightError

    try:
        result = ew.compile(module, inputs, TARGETS[backend], quantize=precision, quiet=True, check=False,
                            calibration=[inputs] if precision else None,
                            simulate=None if backend in ("xnnpack", "ethos_u") else True, evaluate=0)  # fmt: skip
    except EdgewrightError as error:
        return f"{type(error).__name__} {digest(str(error).replace(str(ROOT), ''))}"
    return digest(bytes(result.program.buffer))


def plans(dialect: str) -> Digests:
    """What the engine does with random graphs: step labels, and the text of every kernel without its name."""
    from edgewright.engine.compiler import make_plan
    from tests.compose.builder import build
    from tests.compose.dialects import DIALECTS, generate

    found: Digests = {}
    for seed in range(GRAPHS):
        spec = generate(dialect, seed)
        if not spec.outputs:
            continue
        graph = build(spec, DIALECTS[dialect].builder()).graph
        plan = make_plan(graph, threads=1, numerics=DIALECTS[dialect].numerics, cpu="avx512")
        texts = {name: source if isinstance(source, str) else source() for name, source in plan.kernels.items()}
        steps = [f"{step.label} {_anonymous(texts[step.kernel], step.kernel) if step.python is None else 'numpy'}"
                 for step in plan.steps]  # fmt: skip
        found[f"plans/{dialect}/{seed}/labels"] = digest(*(step.label for step in plan.steps))
        found[f"plans/{dialect}/{seed}/kernels"] = digest(*steps)
    return found


def _anonymous(text: str, name: str) -> str:
    """A kernel's text without names: they are made of its kind and of a hash of its description."""
    return re.sub(r"\b(\w+?)_[0-9a-f]{24}\b", "KERNEL", text.replace(name, "KERNEL"))


def helps(_: str) -> Digests:
    os.environ["COLUMNS"] = "100"
    from edgewright.cli import COMMANDS, build_parser

    found = {"help/edgewright": digest(build_parser().format_help())}
    for command in COMMANDS:
        chosen = build_parser(command)
        actions = [a for a in chosen._actions if isinstance(a, argparse._SubParsersAction)]
        found[f"help/{command}"] = digest(actions[0].choices[command].format_help())
    return found


def names(_: str) -> Digests:
    """What every package lists in ``__all__``. A package that is gone or moved differs by its name."""
    import edgewright

    found: Digests = {}
    modules = ["edgewright", *(m.name for m in pkgutil.walk_packages(edgewright.__path__, "edgewright.") if m.ispkg)]
    for name in modules:
        offered = getattr(importlib.import_module(name), "__all__", None)
        if offered is not None:
            found[f"names/{name}"] = " ".join(sorted(offered))
    return found


def jobs() -> Iterator[tuple[str, Callable[[str], Digests], str]]:
    yield "names", names, ""
    yield "help", helps, ""
    for dialect in ("core", "tosa", "tflite", "qnn", "enn"):
        yield f"plans/{dialect}", plans, dialect
    # Longest first, so that two processes end at about the same time.
    for name in ("mobilenet_v2", "resnet18", "vit", "bilstm", "encoder", "decoder", "cifarnet", "upscaler"):
        yield f"networks/{name}", networks, name
    for backend in TARGETS:
        yield f"operators/{backend}", operators, backend


def compute(only: str, processes: int) -> Digests:
    chosen = [(work, argument) for name, work, argument in jobs() if name.startswith(only)]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found: Digests = {}
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        for part in pool.imap(_run, chosen):
            found.update(part)
    return dict(sorted(found.items()))


def _run(job: tuple[Callable[[str], Digests], str]) -> Digests:
    import warnings

    warnings.simplefilter("ignore")
    work, argument = job
    return work(argument)


def compare(before: Digests, after: Digests) -> list[str]:
    lines = [f"- {name}" for name in before.keys() - after.keys()]
    lines += [f"+ {name}" for name in after.keys() - before.keys()]
    lines += [f"! {name}: {before[name]} -> {after[name]}" for name in before.keys() & after.keys()
              if before[name] != after[name]]  # fmt: skip
    return sorted(lines, key=lambda line: line[2:])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="what begins so, such as 'plans/' or 'operators/xnnpack'")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args(arguments)
    after = compute(options.only, options.jobs)
    if options.command == "write":
        options.file.write_text(json.dumps(after, indent=0) + "\n")
        print(f"{len(after)} digests")
        return 0
    kept = json.loads(options.file.read_text())
    lines = compare({n: d for n, d in kept.items() if n.startswith(options.only)}, after)
    print("\n".join([*lines, f"{len(after)} digests, {len(lines)} differences"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
