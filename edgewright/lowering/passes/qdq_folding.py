"""Quantize and dequantize nodes become what they mean: parameters of values.

``dequantize → operator → quantize`` is an operator on integers. What cannot be read so stays as it is, with explicit
conversions. Operators get their names from the op table here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.aten.table import OpTable
from edgewright.ir.core.dynamic_conv import is_pointwise_gemm
from edgewright.ir.graph import Graph, Op, Origin, QParams, Value
from edgewright.ir.ports import Bias, Index, Weight
from edgewright.lowering.passes.constant_folding import dequantized
from edgewright.lowering.passes.qdq_params import AFFINE, PREFIX, is_conversion, known_parameters
from edgewright.lowering.passes.value_storage import activation_limits, by_channel, store_constants

QUANTIZE, DEQUANTIZE, CONVERT, REQUANTIZE = "quantize", "dequantize", "convert", "requantize"


def fold_quantization(
    graph: Graph,
    table: OpTable,
    absorbs: Mapping[str, tuple[str, ...]],
    apart: Collection[Origin] = frozenset(),
    static: frozenset[str] | None = None,
    numbers: frozenset[str] = frozenset(),
) -> Graph:
    """The graph with canonical operators and quantized values. ``absorbs`` says what may be fused onto what;
    operators whose origins are in ``apart`` are not fused. ``static``: the operators that work on
    integers (None: all); the others stay real, between conversions. ``numbers``: those that take plain numbers too."""
    store_constants(graph)
    folder = _Folder(graph, table, absorbs, apart)
    folder.static = static
    folder.numbers = numbers
    return folder.run()


class _Folder:
    def __init__(
        self, graph: Graph, table: OpTable, absorbs: Mapping[str, tuple[str, ...]], apart: Collection[Origin]
    ) -> None:
        self.graph = graph
        self.apart = apart
        self.table = table
        self.absorbs = absorbs
        self.makers = {v: op for op in graph.ops for v in op.outputs if v is not None}
        self.readers: dict[Value, list[Op]] = {}
        for op in graph.ops:
            for value in op.inputs():
                self.readers.setdefault(value, []).append(op)
        self.kept = {v for v in graph.outputs if isinstance(v, Value)} | {s for _, s in graph.updates}
        self.done: set[Op] = set()
        self.ops: list[Op] = []
        # Dynamically quantized values, by how many dimensions share a scale and whether products of pixels read
        # them: XNNPACK gives each pixel a scale for those, and changes what other convolutions read too.
        self.rows: dict[tuple[Value, int, bool], Value] = {}
        self.static: frozenset[str] | None = None
        self.numbers: frozenset[str] = frozenset()

    def run(self) -> Graph:
        for op in self.graph.ops:
            if op not in self.done:
                self._visit(op)
        live = _live(self.ops, [*self.graph.outputs, *(s for _, s in self.graph.updates)])
        return Graph(self.graph.name, self.graph.inputs, self.graph.outputs, live, self.graph.updates)

    def _visit(self, op: Op) -> None:
        if op.kind.startswith((PREFIX, AFFINE)):
            self._conversion(op)
            return
        row = self.table.of(op)
        if row is None:
            self.ops.append(op)
            return
        made = Op(row.name, dict(op.args), self._read_outputs(op), op.origin, op.graphs)
        self._absorb(made)
        self._quantized(made)
        self.ops.append(made)

    def _read_outputs(self, op: Op) -> list[Value | None]:
        """An operator's results without trailing ones that nobody reads (a pool's indices, a norm's statistics)."""
        outputs = list(op.outputs)
        while len(outputs) > 1 and (outputs[-1] is None or not self._is_read(outputs[-1])):
            outputs.pop()
        return outputs

    def _is_read(self, value: Value) -> bool:
        return bool(self.readers.get(value)) or value in self.kept

    # ---------------------------------------------------------------------------------------------- conversions

    def _conversion(self, op: Op) -> None:
        parameters = known_parameters(op)
        if parameters is None or parameters.block:
            self.ops.append(op)
            return
        source, out = op.args["input"], op.outputs[0]
        assert out is not None
        stored = self._source(source) if self.static is not None and REQUANTIZE in self.static else None
        if is_conversion(op, "quantize") and stored is not None and not isinstance(stored, list):
            out.q = parameters
            self.ops.append(Op(REQUANTIZE, {"self": stored}, [out], op.origin))
        elif is_conversion(op, "quantize"):
            out.q = parameters
            self.ops.append(Op(QUANTIZE, {"self": source}, [out], op.origin))
        else:
            source.q = parameters
            self.ops.append(Op(DEQUANTIZE, {"self": source}, [out], op.origin))

    # --------------------------------------------------------------------------------------------------- folding

    def _absorb(self, op: Op) -> None:
        """Fuse a following activation: its limits become the operator's."""
        out = op.outputs[0] if len(op.outputs) == 1 else None
        reader = self._only_reader(out)
        row = self.table.of(reader) if reader is not None else None
        if reader is None or row is None or row.name not in self.absorbs.get(op.kind, ()):
            return
        if op.origin in self.apart or reader.origin in self.apart:
            return
        if row.name == "cast" and reader.outputs[0] is not None and reader.outputs[0].dtype == np.int32:
            op.outputs = [reader.outputs[0]]  # places that are wanted in 32 bits
            self.done.add(reader)
            return
        limits = activation_limits(row.name, reader)
        if limits is None or reader.outputs[0] is None:
            return
        op.args["limits"] = limits
        op.outputs = [reader.outputs[0]]
        self.done.add(reader)

    def _only_reader(self, value: Value | None) -> Op | None:
        if value is None or value in self.kept:
            return None
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 else None

    def _quantized(self, op: Op) -> None:
        """Let an operator work on integers, if all its activations and its result are quantized."""
        row = self.table[op.kind]
        sources = {name: self._source(value) for name, value in op.args.items()}
        loose = [
            name
            for name, value in op.args.items()
            if _is_activation(value) and not isinstance(row.ports.get(name), Weight | Bias | Index)
        ]
        weights = [
            name
            for name, port in row.ports.items()
            if isinstance(port, Weight) and sources.get(name) is not None and sources[name].constant
        ]
        integers = (
            _one_quantity(op)
            and not self._has_real_weight(op, sources)
            and (self._dynamic(op, loose, weights) or self._static(op, loose or weights, sources))
        )
        for name in weights:
            op.args[name] = sources[name] if integers else self._real(sources[name], op.args[name])
            source = op.args.get("input")  # an embedding has none
            if source is not None and source.q is not None and source.q.dynamic and integers:
                op.args[name] = by_channel(op.args[name], row.ports[name])

    def _has_real_weight(self, op: Op, sources: dict[str, Any]) -> bool:
        """True for a layer left in floating point between two that are not: its neighbours' integers are not its."""
        ports = self.table[op.kind].ports
        held = [(name, op.args.get(name)) for name, port in ports.items() if isinstance(port, Weight)]
        return any(isinstance(v, Value) and v.constant and v.q is None and sources[name] is None for name, v in held)

    def _static(self, op: Op, loose: list[str], sources: dict[str, Any]) -> bool:
        """``dequantize → operator → quantize``."""
        if self.static is not None and op.kind not in self.static:
            return False
        reader = self._only_reader(op.outputs[0])
        parameters = known_parameters(reader) if reader is not None and is_conversion(reader, "quantize") else None
        # A second operand that is a number, or a constant left real, keeps the operator real.
        fixed = [name for name in ("self", "other") if name in op.args and name not in loose and "other" in op.args]
        if op.kind in self.numbers:
            fixed = [name for name in fixed if isinstance(op.args[name], Value)]
        taken = [*loose, *fixed]
        if not taken or any(sources[name] is None for name in taken):
            return False
        counted = isinstance(self.table[op.kind].ports.get("out"), Index)  # a truth or a place, which has no scale
        if len(op.outputs) > 1 and op.outputs[0] is not None and not self._is_read(op.outputs[0]):
            counted = True  # only the places are read; the values stay what they are
            op.outputs[0] = replace(op.outputs[0], dtype=sources[taken[0]].dtype, q=sources[taken[0]].q)
        if not counted and (parameters is None or reader is None):
            return False
        for name in taken:
            op.args[name] = sources[name]
        if counted or reader is None:
            return True
        out = reader.outputs[0]
        assert out is not None
        out.q = parameters
        op.outputs = [out, *op.outputs[1:]]
        self.done.add(reader)
        return True

    def _source(self, value: Any) -> Any:
        """The integers behind a dequantized value (or list of them), or None."""
        if isinstance(value, list):
            found = [self._source(v) for v in value]
            return None if any(f is None for f in found) else found
        maker = self.makers.get(value) if isinstance(value, Value) else None
        if maker is None or not is_conversion(maker, "dequantize"):
            return None
        q = known_parameters(maker)
        if q is None:
            return None
        maker.args["input"].q = q
        return maker.args["input"]

    def _real(self, stored: Value, given: Value) -> Value:
        """A quantized weight of an operator on real numbers, as real numbers."""
        if stored.q is None or stored.q.block:
            return given
        made = Value(given.name, given.dtype, given.shape, given.dim_order, dequantized(stored).astype(given.dtype))
        made.qualified_name = stored.qualified_name
        return made

    def _dynamic(self, op: Op, loose: list[str], weights: list[str]) -> bool:
        """``choose parameters → quantize → dequantize → operator``: rows are quantized as they come."""
        if len(loose) != 1 or not weights or op.kind not in ("linear", "conv2d"):
            return False
        maker = self.makers.get(op.args[loose[0]])
        source = (
            self.makers.get(maker.args["input"]) if maker is not None and is_conversion(maker, "dequantize") else None
        )
        if (
            maker is None
            or source is None
            or not is_conversion(source, "quantize")
            or known_parameters(maker) is not None
        ):
            return False
        real: Value = source.args["input"]
        if not self._by_rows(source, real):
            return False
        dims = 1 if op.kind == "linear" else 3
        key = (real, dims, op.kind == "conv2d" and _by_pixel(op))
        if key not in self.rows:
            q = QParams(1.0, 0, np.dtype(np.int8), -128, 127, axis=-dims, dynamic="per_token")
            stored = Value(f"{real.name}_rows", np.dtype(np.int8), real.shape, tuple(range(len(real.shape))), q=q)
            self.ops.append(Op(CONVERT, {"self": real}, [stored], op.origin))
            self.rows[key] = stored
        op.args[loose[0]] = self.rows[key]
        return True

    def _by_rows(self, quantize: Op, real: Value) -> bool:
        """True if the parameters are found from the tensor itself, whole or row by row, with a zero point."""
        scale = quantize.args.get("scale", quantize.args.get("scales"))
        chooser = self.makers.get(scale) if isinstance(scale, Value) else None
        if chooser is None or "choose_qparams" not in chooser.kind or not self._same(chooser.args["input"], real):
            return False
        if not quantize.kind.startswith(AFFINE):
            return "symmetric" not in chooser.kind or "asymmetric" in chooser.kind
        blocks = list(quantize.args["block_size"])
        rows = all(b == 1 for b in blocks[:-1]) and blocks[-1] in (-1, real.shape[-1])
        return rows and chooser.args["mapping_type"] == "ASYMMETRIC"

    def _same(self, first: Value, second: Value) -> bool:
        """True if two values are one: torchao gives every reader of a dequantized value one of its own."""
        if first is second:
            return True
        a, b = self.makers.get(first), self.makers.get(second)
        if a is None or b is None or not (is_conversion(a, "dequantize") and is_conversion(b, "dequantize")):
            return False
        return a.args["input"] is b.args["input"] and known_parameters(a) == known_parameters(b) is not None


# ----------------------------------------------------------------------------------------------- small questions


def _by_pixel(op: Op) -> bool:
    outputs, inputs, *kernel = op.args["weight"].bound
    return is_pointwise_gemm(op, (inputs, outputs), tuple(kernel))


def _one_quantity(op: Op) -> bool:
    """True if only the first result is a quantity: others are places."""
    return bool(op.outputs) and all(o is None or o.dtype is None or o.dtype.kind != "f" for o in op.outputs[1:])


def _is_activation(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_activation(v) for v in value)
    return isinstance(value, Value) and value.dtype is not None and not value.constant


def _live(ops: list[Op], outputs: list[Any]) -> list[Op]:
    """Operators whose results somebody reads."""
    wanted = {v for v in outputs if isinstance(v, Value)}
    kept = []
    for op in reversed(ops):
        if any(o is not None and o in wanted for o in op.outputs) or not op.outputs:
            kept.append(op)
            wanted |= set(op.inputs())
            wanted |= {v for g in op.graphs.values() for inner in g.ops for v in inner.inputs()}
    return kept[::-1]
