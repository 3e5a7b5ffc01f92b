"""Rounding functions of object files, run on a board whose processor lacks the instructions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgewright.engine import object_file
from edgewright.engine.codegen.builder import PTR, Module, const
from edgewright.engine.cross_target import find_cross_target
from edgewright.engine.object_reader import mark_float_abi, read_object
from edgewright.engine.plan import TensorSpec
from tests.bare_metal.boards import GCC, QEMU, require_tools, run_graph_on_board

_ROUNDINGS = {"rint": np.rint, "nearbyint": np.rint, "roundeven": np.rint, "trunc": np.trunc, "floor": np.floor,
              "ceil": np.ceil}  # fmt: skip


def _values(dtype: type) -> np.ndarray:
    integral = 2.0**23 if dtype is np.float32 else 2.0**52
    near = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 3.5, 1e-30, 12345.5, integral / 2 - 0.5, integral - 0.5, integral,
            integral + 1, 1e30, np.inf]  # fmt: skip
    close = [np.nextafter(dtype(x), dtype(toward)) for x in (0.5, 1.5, 2.0) for toward in (0, 9)]
    values = np.array([*near, *close], dtype)
    return np.concatenate([values, -values, np.array([np.nan], dtype)])


def test_rounding_is_that_of_the_c_library(tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    inputs = [_values(np.float32), _values(np.float64)]
    count, target = len(inputs[0]), find_cross_target("cortex-m4")
    machine, module = object_file._target_machine(target), Module("arm")
    f = module.function("model_run", [(PTR, n) for n in ("inputs", "outputs", "arena")], "i32", exported=True)
    for position, (kind, suffix, size) in enumerate((("float", "f32", 4), ("double", "f64", 8))):
        source, result = (f.load(PTR, f.arg(side), 4 * position, 4) for side in ("inputs", "outputs"))

        def each(index, _, source=source, result=result, kind=kind, suffix=suffix, size=size):  # type: ignore[no-untyped-def]
            x = f.load(kind, f.gep(source, f.mul(index, size)))
            for row, name in enumerate(_ROUNDINGS):
                y = f.call(f"llvm.{name}.{suffix}", kind, x)
                f.store(y, f.gep(result, f.add(f.mul(index, size), row * count * size)))
            return []

        f.loop(count, [], each)
    f.ret(const(0, "i32"))
    import llvmlite.binding as llvm

    head = f'target triple = "{target.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    data = object_file._emit_with_library(llvm.parse_assembly(head + module.text()), machine)
    assert not read_object(data).undefined
    (tmp_path / "model.o").write_bytes(mark_float_abi(data))
    outputs = [TensorSpec("y", x.dtype, (len(_ROUNDINGS), count)) for x in inputs]
    found = run_graph_on_board("cortex-m4", tmp_path, inputs, outputs, 16)
    for x, made in zip(inputs, found, strict=True):
        rows = np.frombuffer(made, x.dtype).reshape(len(_ROUNDINGS), count)
        for (name, rounding), row in zip(_ROUNDINGS.items(), rows, strict=True):
            wanted = rounding(x)
            assert np.isnan(row[-1]), name
            np.testing.assert_array_equal(row[:-1], wanted[:-1], name)
            np.testing.assert_array_equal(np.signbit(row[:-1]), np.signbit(wanted[:-1]), name)
