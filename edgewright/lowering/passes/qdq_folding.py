"""Folding of quantize and dequantize (QDQ) nodes into quantization parameters of values.

``dequantize -> op -> quantize`` becomes one operator on integers whose operands and result carry scales and zero
points; ``choose_qparams -> quantize -> dequantize -> op`` becomes an operator with a dynamically quantized operand.
Everything else keeps explicit ``quantize`` and ``dequantize`` operators, so the pass never changes what a graph means.
ATen operators get their op-table names here, and activations are fused onto their producers.

The QDQ form is that of PyTorch's PT2E export and of ONNX; for what integer arithmetic it stands for read Jacob et al.,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (CVPR 2018).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.table import CONVERT, DEQUANTIZE, QUANTIZE, REQUANTIZE
from edgewright.ir.aten.table import OpTable
from edgewright.ir.core.conv import is_pointwise_gemm
from edgewright.ir.graph import Graph, Op, Origin, QParams, Value
from edgewright.ir.ports import Bias, Index, Weight
from edgewright.lowering.passes.constant_folding import dequantize_constant
from edgewright.lowering.passes.qdq_params import AFFINE, PREFIX, is_conversion, static_qparams
from edgewright.lowering.passes.value_storage import activation_limits, quantize_constants, to_per_channel


def fold_quantization(
    graph: Graph,
    table: OpTable,
    absorbs: Mapping[str, tuple[str, ...]],
    unfusable: Collection[Origin] = frozenset(),
    static: frozenset[str] | None = None,
    numbers: frozenset[str] = frozenset(),
) -> Graph:
    """The graph with op-table operators and quantized values.

    ``absorbs``: activations that may be fused, by operator. ``unfusable``: origins of operators not to fuse.
    ``static``: operators that compute on integers (None: all); others stay in floating point between conversions.
    ``numbers``: operators that also accept plain numbers as operands.
    """
    quantize_constants(graph)
    folder = _QdqFolder(graph, table, absorbs, unfusable)
    folder.static = static
    folder.numbers = numbers
    return folder.run()


class _QdqFolder:
    """One forward traversal; ``ops`` is the new graph, ``fused`` are operators that were fused into earlier ones."""

    def __init__(
        self, graph: Graph, table: OpTable, absorbs: Mapping[str, tuple[str, ...]], unfusable: Collection[Origin]
    ) -> None:
        self.graph = graph
        self.unfusable = unfusable
        self.table = table
        self.absorbs = absorbs
        self.producers = {v: op for op in graph.ops for v in op.outputs if v is not None}
        self.readers: dict[Value, list[Op]] = {}
        for op in graph.ops:
            for value in op.inputs():
                self.readers.setdefault(value, []).append(op)
        self.graph_results = {v for v in graph.outputs if isinstance(v, Value)} | {s for _, s in graph.updates}
        self.fused: set[Op] = set()
        self.ops: list[Op] = []
        # Dynamically quantized values, by how many dimensions share a scale and whether a pointwise convolution
        # reads them: XNNPACK runs those as a gemm with one scale per pixel, which other readers must not see.
        self.rows: dict[tuple[Value, int, bool], Value] = {}
        self.static: frozenset[str] | None = None
        self.numbers: frozenset[str] = frozenset()

    def run(self) -> Graph:
        for op in self.graph.ops:
            if op not in self.fused:
                self._visit(op)
        live = _live_ops(self.ops, [*self.graph.outputs, *(s for _, s in self.graph.updates)])
        return Graph(self.graph.name, self.graph.inputs, self.graph.outputs, live, self.graph.updates)

    def _visit(self, op: Op) -> None:
        if op.kind.startswith((PREFIX, AFFINE)):
            self._visit_conversion(op)
            return
        entry = self.table.of(op)
        if entry is None:
            self.ops.append(op)
            return
        new = Op(entry.name, dict(op.args), self._used_outputs(op), op.origin, op.graphs)
        self._fuse_activation(new)
        self._fold_op(new)
        self.ops.append(new)

    def _used_outputs(self, op: Op) -> list[Value | None]:
        """An operator's results without trailing unused ones (a pool's indices, a norm's statistics)."""
        outputs = list(op.outputs)
        while len(outputs) > 1 and (outputs[-1] is None or not self._is_read(outputs[-1])):
            outputs.pop()
        return outputs

    def _is_read(self, value: Value) -> bool:
        return bool(self.readers.get(value)) or value in self.graph_results

    # ---------------------------------------------------------------------------------------------- conversions

    def _visit_conversion(self, op: Op) -> None:
        qparams = static_qparams(op)
        if qparams is None or qparams.block:
            self.ops.append(op)
            return
        source, out = op.args["input"], op.outputs[0]
        assert out is not None
        quantized = self._quantized_source(source) if self.static is not None and REQUANTIZE in self.static else None
        if is_conversion(op, "quantize") and quantized is not None and not isinstance(quantized, list):
            out.q = qparams
            self.ops.append(Op(REQUANTIZE, {"self": quantized}, [out], op.origin))
        elif is_conversion(op, "quantize"):
            out.q = qparams
            self.ops.append(Op(QUANTIZE, {"self": source}, [out], op.origin))
        else:
            source.q = qparams
            self.ops.append(Op(DEQUANTIZE, {"self": source}, [out], op.origin))

    # --------------------------------------------------------------------------------------------------- folding

    def _fuse_activation(self, op: Op) -> None:
        """Fuse a following activation: its bounds become the operator's ``limits``."""
        out = op.outputs[0] if len(op.outputs) == 1 else None
        reader = self._single_reader(out)
        entry = self.table.of(reader) if reader is not None else None
        if reader is None or entry is None or entry.name not in self.absorbs.get(op.kind, ()):
            return
        if op.origin in self.unfusable or reader.origin in self.unfusable:
            return
        if entry.name == "cast" and reader.outputs[0] is not None and reader.outputs[0].dtype == np.int32:
            op.outputs = [reader.outputs[0]]  # indices as int32
            self.fused.add(reader)
            return
        limits = activation_limits(entry.name, reader)
        if limits is None or reader.outputs[0] is None or limits[0] > limits[1]:  # runtimes reject empty ranges
            return
        op.args["limits"] = limits
        op.outputs = [reader.outputs[0]]
        self.fused.add(reader)

    def _single_reader(self, value: Value | None) -> Op | None:
        if value is None or value in self.graph_results:
            return None
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 else None

    def _fold_op(self, op: Op) -> None:
        """Convert an operator to integers, if all its activations and its result are quantized."""
        entry = self.table[op.kind]
        sources = {name: self._quantized_source(value) for name, value in op.args.items()}
        activations = [
            name
            for name, value in op.args.items()
            if _is_activation(value) and not isinstance(entry.ports.get(name), Weight | Bias | Index)
        ]
        weights = [
            name
            for name, port in entry.ports.items()
            if isinstance(port, Weight) and sources.get(name) is not None and sources[name].constant
        ]
        integers = (
            _has_single_data_result(op)
            and not self._has_float_weight(op, sources)
            and (self._fold_dynamic(op, activations, weights) or self._fold_static(op, activations or weights, sources))
        )
        for name in weights:
            op.args[name] = sources[name] if integers else self._dequantized_weight(sources[name], op.args[name])
            source = op.args.get("input")  # an embedding has none
            if source is not None and source.q is not None and source.q.dynamic and integers:
                op.args[name] = to_per_channel(op.args[name], entry.ports[name])

    def _has_float_weight(self, op: Op, sources: dict[str, Any]) -> bool:
        """True for a layer with float weights between quantized ones, which must stay in floating point."""
        ports = self.table[op.kind].ports
        weights = [(name, op.args.get(name)) for name, port in ports.items() if isinstance(port, Weight)]
        return any(isinstance(v, Value) and v.constant and v.q is None and sources[name] is None for name, v in weights)

    def _fold_static(self, op: Op, activations: list[str], sources: dict[str, Any]) -> bool:
        """Fold ``dequantize -> op -> quantize``."""
        if self.static is not None and op.kind not in self.static:
            return False
        reader = self._single_reader(op.outputs[0])
        qparams = static_qparams(reader) if reader is not None and is_conversion(reader, "quantize") else None
        # A second operand that is a number or a float constant keeps the operator in floating point.
        operands = [
            name for name in ("self", "other") if name in op.args and name not in activations and "other" in op.args
        ]
        if op.kind in self.numbers:
            operands = [name for name in operands if isinstance(op.args[name], Value)]
        quantized = [*activations, *operands]
        if not quantized or any(sources[name] is None for name in quantized):
            return False
        unscaled = isinstance(self.table[op.kind].ports.get("out"), Index)  # bools and indices have no scale
        if len(op.outputs) > 1 and op.outputs[0] is not None and not self._is_read(op.outputs[0]):
            unscaled = True  # only the indices are read; the values keep the operand's scale
            op.outputs[0] = replace(op.outputs[0], dtype=sources[quantized[0]].dtype, q=sources[quantized[0]].q)
        if not unscaled and (qparams is None or reader is None):
            return False
        for name in quantized:
            op.args[name] = sources[name]
        if unscaled or reader is None:
            return True
        out = reader.outputs[0]
        assert out is not None
        out.q = qparams
        op.outputs = [out, *op.outputs[1:]]
        self.fused.add(reader)
        return True

    def _quantized_source(self, value: Any) -> Any:
        """The quantized value behind a dequantized one (or a list of them), or None."""
        if isinstance(value, list):
            sources = [self._quantized_source(v) for v in value]
            return None if any(f is None for f in sources) else sources
        producer = self.producers.get(value) if isinstance(value, Value) else None
        if producer is None or not is_conversion(producer, "dequantize"):
            return None
        q = static_qparams(producer)
        if q is None:
            return None
        producer.args["input"].q = q
        return producer.args["input"]

    def _dequantized_weight(self, quantized: Value, original: Value) -> Value:
        """A quantized weight of a float operator, dequantized."""
        if quantized.q is None or quantized.q.block:
            return original
        result = Value(
            original.name,
            original.dtype,
            original.shape,
            original.dim_order,
            dequantize_constant(quantized).astype(original.dtype),
        )
        result.qualified_name = quantized.qualified_name
        return result

    def _fold_dynamic(self, op: Op, activations: list[str], weights: list[str]) -> bool:
        """Fold ``choose_qparams -> quantize -> dequantize -> op``: the operand is quantized at run time, per row."""
        if len(activations) != 1 or not weights or op.kind not in ("linear", "conv2d"):
            return False
        producer = self.producers.get(op.args[activations[0]])
        source = (
            self.producers.get(producer.args["input"])
            if producer is not None and is_conversion(producer, "dequantize")
            else None
        )
        if (
            producer is None
            or source is None
            or not is_conversion(source, "quantize")
            or static_qparams(producer) is not None
        ):
            return False
        float_value: Value = source.args["input"]
        if not self._is_row_quantization(source, float_value):
            return False
        dims = 1 if op.kind == "linear" else 3
        key = (float_value, dims, op.kind == "conv2d" and _is_pointwise(op))
        if key not in self.rows:
            q = QParams(1.0, 0, np.dtype(np.int8), -128, 127, axis=-dims, dynamic="per_token")
            quantized = Value(
                f"{float_value.name}_rows",
                np.dtype(np.int8),
                float_value.shape,
                tuple(range(len(float_value.shape))),
                q=q,
            )
            self.ops.append(Op(CONVERT, {"self": float_value}, [quantized], op.origin))
            self.rows[key] = quantized
        op.args[activations[0]] = self.rows[key]
        return True

    def _is_row_quantization(self, quantize: Op, float_value: Value) -> bool:
        """True if the parameters are computed from the tensor itself, per tensor or per row, asymmetrically."""
        scale = quantize.args.get("scale", quantize.args.get("scales"))
        chooser = self.producers.get(scale) if isinstance(scale, Value) else None
        if (
            chooser is None
            or "choose_qparams" not in chooser.kind
            or not self._is_same_value(chooser.args["input"], float_value)
        ):
            return False
        if not quantize.kind.startswith(AFFINE):
            return "symmetric" not in chooser.kind or "asymmetric" in chooser.kind
        blocks = list(quantize.args["block_size"])
        rows = all(b == 1 for b in blocks[:-1]) and blocks[-1] in (-1, float_value.shape[-1])
        return rows and chooser.args["mapping_type"] == "ASYMMETRIC"

    def _is_same_value(self, first: Value, second: Value) -> bool:
        """True if two values are equal: torchao dequantizes separately for every reader."""
        if first is second:
            return True
        a, b = self.producers.get(first), self.producers.get(second)
        if a is None or b is None or not (is_conversion(a, "dequantize") and is_conversion(b, "dequantize")):
            return False
        return a.args["input"] is b.args["input"] and static_qparams(a) == static_qparams(b) is not None


# ------------------------------------------------------------------------------------------------- predicates


def _is_pointwise(op: Op) -> bool:
    outputs, inputs, *kernel = op.args["weight"].bound
    return is_pointwise_gemm(op, (inputs, outputs), tuple(kernel))


def _has_single_data_result(op: Op) -> bool:
    """True if only the first result is quantized data; the others are indices."""
    return bool(op.outputs) and all(o is None or o.dtype is None or o.dtype.kind != "f" for o in op.outputs[1:])


def _is_activation(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_activation(v) for v in value)
    return isinstance(value, Value) and value.dtype is not None and not value.constant


def _live_ops(ops: list[Op], outputs: list[Any]) -> list[Op]:
    """Operators whose results are read."""
    live = {v for v in outputs if isinstance(v, Value)}
    result = []
    for op in reversed(ops):
        if any(o is not None and o in live for o in op.outputs) or not op.outputs:
            result.append(op)
            live |= set(op.inputs())
            live |= {v for g in op.graphs.values() for inner in g.ops for v in inner.inputs()}
    return result[::-1]
