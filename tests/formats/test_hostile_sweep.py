"""Golden files cut at every byte, and with every number in them at its extremes: a result, or our error."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from edgewright.errors import EdgewrightError
from tests.support import golden, hostile
from tests.support.mutate import cells, extremes, format_of, mutations

MEMORY = 300 << 20  # what the limits of ``hostile`` allow three times over (plan, unplanned, outputs), and temporaries
CUT = ["linear_fp32_portable.pte", "linear_fp32_xnnpack.pte", "mutable_buffer.pte", "mlp_portable_weights.ptd",
       "linear_relu.bpte", "portable.etdp", "xnnpack.etdp"]  # fmt: skip
SWEPT = ["cond.pte", "conv_relu_fp32_portable.pte", "handmade_add.pte", "linear_fp32_portable.pte",
         "linear_fp32_xnnpack.pte", "mlp_ptd_portable.pte", "mutable_buffer.pte", "symint_portable.pte",
         "mlp_portable_weights.ptd", "linear_relu.bpte", "portable.etdp", "xnnpack.etdp"]  # fmt: skip
QUICK = ("linear_fp32_portable.pte", "linear_fp32_xnnpack.pte", "mlp_portable_weights.ptd", "portable.etdp")
ALL = sorted(p.name for p in golden.GOLDEN.iterdir() if p.suffix in (".pte", ".ptd", ".bpte", ".etdp"))


def load(name: str) -> bytes:
    return (golden.GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", CUT)
def test_a_file_cut_at_any_byte_is_refused(name: str) -> None:
    data = load(name)
    kind = format_of(data)
    accepted = [size for size in range(len(data)) if hostile.read(kind, data[:size]) != "FormatError"]
    # A bundle does not say how long it is; nothing points at the padding at its end.
    padding = len(data) - len(data.rstrip(b"\0")) if kind == "bpte" else 0
    assert all(size >= len(data) - padding for size in accepted)


def sweep(name: str) -> dict[str, int]:
    """Read, and if accepted run, every mutation of a file; how often each outcome came."""
    data, kind = load(name), format_of(load(name))
    weights = golden.data(Path(name).stem)
    outcomes: dict[str, int] = {}
    for label, changed in mutations(data):
        try:
            outcome = hostile.read(kind, changed)
            if outcome == "ok" and kind == "pte":
                outcome = _run(changed, weights)
        except Exception as error:
            raise AssertionError(f"{name}: {label}: {error!r}") from error
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def _run(data: bytes, weights: Path | None) -> str:
    tracemalloc.start()
    outcome = hostile.run(data, weights)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY
    return outcome


@pytest.mark.sample(*QUICK)
@pytest.mark.parametrize("name", SWEPT)
def test_every_number_at_its_extremes(name: str) -> None:
    outcomes = sweep(name)
    assert outcomes["FormatError"] > 100
    assert sum(outcomes.values()) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ALL) - set(SWEPT)))
def test_every_number_of_the_other_files_at_its_extremes(name: str) -> None:
    assert sweep(name)["FormatError"] > 100


@pytest.mark.parametrize("name", ["linear_relu.bpte"])
def test_the_program_in_a_bundle_is_as_hostile(name: str) -> None:
    outcomes = {hostile.verify(changed) for label, changed in mutations(load(name))}
    assert {"ok", "FormatError", "VersionError", "ExecutionError", "InputError", "UsageError"} <= outcomes


@pytest.mark.parametrize("name", ALL)
def test_the_walk_finds_every_kind_of_number(name: str) -> None:
    data = load(name)
    found = list(cells(data))
    assert {"header", "offset", "vtable", "length", "scalar", "text"} <= {cell.kind for cell in found}
    assert len({(cell.at, cell.path) for cell in found}) == len(found)
    for cell in found:
        for value in extremes(cell, len(data)):
            assert len(cell.put(data, value)) == len(data)


def test_two_numbers_at_once() -> None:
    """Sizes and offsets that agree with each other get further than one wrong number."""
    data = load("linear_fp32_portable.pte")
    by_path = {cell.path: cell for cell in cells(data)}
    arena = by_path["execution_plan[0].non_const_buffer_sizes[1]"]
    huge = arena.put(data, 2**62)
    outcomes = set()
    for path in ("execution_plan[0].values[2]<Tensor>.sizes[0]", "execution_plan[0].values[7]<Tensor>.sizes[1]"):
        for size in (2**20, 2**26, 2**31 - 1):
            outcomes.update(hostile.run(by_path[path].put(huge, size)))
    assert outcomes == {"LimitError", "ExecutionError"}
    with pytest.raises(EdgewrightError):
        hostile.read_program(by_path["execution_plan[0].values[2]<Tensor>.sizes[0]"].put(data, 2**31 - 1))
