"""Quantize and dequantize nodes become what they mean: parameters of values.

``dequantize → operator → quantize`` is an operator on integers. What cannot be read so stays as it is, with explicit
conversions. Operators get their names from the op table here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.ops import OpTable
from edgewright.ir.ports import Bias, Index, Weight

QUANTIZE, DEQUANTIZE, CONVERT = "quantize", "dequantize", "convert"
_PREFIX = "quantized_decomposed."


def fold_quantization(
    graph: Graph, table: OpTable, absorbs: Mapping[str, tuple[str, ...]], apart: frozenset[int] = frozenset()
) -> Graph:
    """The graph with canonical operators and quantized values. ``absorbs`` says what may be fused onto what;
    operators whose origins are in ``apart`` (by identity) are not fused."""
    return _Folder(graph, table, absorbs, apart).run()


class _Folder:
    def __init__(
        self, graph: Graph, table: OpTable, absorbs: Mapping[str, tuple[str, ...]], apart: frozenset[int]
    ) -> None:
        self.graph = graph
        self.apart = apart
        self.table = table
        self.absorbs = absorbs
        self.makers = {id(v): op for op in graph.ops for v in op.outputs if v is not None}
        self.readers: dict[int, list[Op]] = {}
        for op in graph.ops:
            for value in op.inputs():
                self.readers.setdefault(id(value), []).append(op)
        self.kept = {id(v) for v in graph.outputs if isinstance(v, Value)} | {id(s) for _, s in graph.updates}
        self.done: set[int] = set()
        self.ops: list[Op] = []

    def run(self) -> Graph:
        for op in self.graph.ops:
            if id(op) not in self.done:
                self._visit(op)
        live = _live(self.ops, [*self.graph.outputs, *(s for _, s in self.graph.updates)])
        return Graph(self.graph.name, self.graph.inputs, self.graph.outputs, live, self.graph.updates)

    def _visit(self, op: Op) -> None:
        if op.kind.startswith(_PREFIX):
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
        return bool(self.readers.get(id(value))) or id(value) in self.kept

    # ---------------------------------------------------------------------------------------------- conversions

    def _conversion(self, op: Op) -> None:
        name = op.kind.removeprefix(_PREFIX)
        if name.startswith("choose_qparams"):
            self.ops.append(op)
            return
        if self._parameters(op) is None or "per_token" in name or "embedding" in name:
            self.ops.append(op)
            return
        source, out = op.args["input"], op.outputs[0]
        assert out is not None
        if name.startswith("quantize"):
            out.q = self._parameters(op)
            self.ops.append(Op(QUANTIZE, {"self": source}, [out], op.origin))
        else:
            source.q = self._parameters(op)
            self.ops.append(Op(DEQUANTIZE, {"self": source}, [out], op.origin))

    def _parameters(self, op: Op) -> QParams | None:
        """The parameters of a conversion, if they are known now."""
        name, args = op.kind.removeprefix(_PREFIX), op.args
        stored = op.outputs[0] if name.startswith("quantize") else args["input"]
        if not isinstance(stored, Value) or stored.dtype is None:
            return None
        if "per_channel" in name:
            scales, zeros = args["scales"], args["zero_points"]
            if scales.data is None or (zeros is not None and zeros.data is None):
                return None
            zero = tuple(int(z) for z in zeros.data) if zeros is not None else (0,) * scales.data.size
            scale = tuple(np.asarray(scales.data, np.float64).tolist())
            return QParams(scale, zero, stored.dtype, args["quant_min"], args["quant_max"], axis=args["axis"])
        if isinstance(args["scale"], Value) or isinstance(args["zero_point"], Value):
            return None
        return QParams(args["scale"], args["zero_point"], stored.dtype, args["quant_min"], args["quant_max"])

    # --------------------------------------------------------------------------------------------------- folding

    def _absorb(self, op: Op) -> None:
        """Fuse a following activation: its limits become the operator's."""
        out = op.outputs[0] if len(op.outputs) == 1 else None
        reader = self._only_reader(out)
        row = self.table.of(reader) if reader is not None else None
        if reader is None or row is None or row.name not in self.absorbs.get(op.kind, ()):
            return
        if not self.apart.isdisjoint((id(op.origin), id(reader.origin))):
            return
        limits = activation_limits(row.name, reader)
        if limits is None or reader.outputs[0] is None:
            return
        op.args["limits"] = limits
        op.outputs = [reader.outputs[0]]
        self.done.add(id(reader))

    def _only_reader(self, value: Value | None) -> Op | None:
        if value is None or id(value) in self.kept:
            return None
        readers = self.readers.get(id(value), [])
        return readers[0] if len(readers) == 1 else None

    def _quantized(self, op: Op) -> None:
        """Let an operator work on integers, if all its activations and its result are quantized."""
        row = self.table[op.kind]
        sources = {name: self._source(value) for name, value in op.args.items()}
        for name, port in row.ports.items():
            if isinstance(port, Weight) and sources.get(name) is not None and sources[name].constant:
                op.args[name] = sources[name]
        loose = [
            name
            for name, value in op.args.items()
            if _is_activation(value) and not isinstance(row.ports.get(name), Weight | Bias | Index)
        ]
        if not loose or len(op.outputs) != 1:
            return
        dynamic = self._dynamic(op, loose)
        if dynamic:
            return
        reader = self._only_reader(op.outputs[0])
        ends = reader is not None and reader.kind.startswith(_PREFIX + "quantize_per_tensor")
        parameters = self._parameters(reader) if ends and reader is not None else None
        if any(sources[name] is None for name in loose) or parameters is None or reader is None:
            return
        for name in loose:
            op.args[name] = sources[name]
        out = reader.outputs[0]
        assert out is not None
        out.q = parameters
        op.outputs = [out]
        self.done.add(id(reader))

    def _source(self, value: Any) -> Any:
        """The integers behind a dequantized value (or list of them), or None."""
        if isinstance(value, list):
            found = [self._source(v) for v in value]
            return None if any(f is None for f in found) else found
        maker = self.makers.get(id(value)) if isinstance(value, Value) else None
        if maker is None or not maker.kind.startswith(_PREFIX + "dequantize"):
            return None
        q = self._parameters(maker)
        if q is None:
            return None
        maker.args["input"].q = q
        return maker.args["input"]

    def _dynamic(self, op: Op, loose: list[str]) -> bool:
        """``choose_qparams → quantize → dequantize → operator``: rows are quantized as they come."""
        if len(loose) != 1 or op.kind not in ("linear", "conv2d"):
            return False
        maker = self.makers.get(id(op.args[loose[0]]))
        if maker is None or not maker.kind.startswith(_PREFIX + "dequantize_per_t"):
            return False
        if self._parameters(maker) is not None:
            return False
        source = self.makers.get(id(maker.args["input"]))
        if source is None or not source.kind.startswith(_PREFIX + "quantize_per_t"):
            return False
        real: Value = source.args["input"]
        dims = 1 if op.kind == "linear" else 3
        q = QParams(1.0, 0, np.dtype(np.int8), -128, 127, axis=-dims, dynamic="per_token")
        stored = Value(f"{real.name}_rows", np.dtype(np.int8), real.shape, tuple(range(len(real.shape))), q=q)
        self.ops.append(Op(CONVERT, {"self": real}, [stored], op.origin))
        op.args[loose[0]] = stored
        return True


def _is_activation(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_activation(v) for v in value)
    return isinstance(value, Value) and value.dtype is not None and not value.constant


def activation_limits(name: str, op: Op) -> tuple[float, float] | None:
    """The range an activation keeps values in, or None if it does more than that."""
    if name == "relu":
        return (0.0, float("inf"))
    if name == "hardtanh":
        return (float(op.args["min_val"]), float(op.args["max_val"]))
    if name == "clamp":
        low, high = op.args.get("min"), op.args.get("max")
        if isinstance(low, Value) or isinstance(high, Value):
            return None
        return (-float("inf") if low is None else float(low), float("inf") if high is None else float(high))
    return None


def _live(ops: list[Op], outputs: list[Any]) -> list[Op]:
    """Operators whose results somebody reads."""
    wanted = {id(v) for v in outputs if isinstance(v, Value)}
    kept = []
    for op in reversed(ops):
        if any(o is not None and id(o) in wanted for o in op.outputs) or not op.outputs:
            kept.append(op)
            wanted |= {id(v) for v in op.inputs()}
            wanted |= {id(v) for g in op.graphs.values() for inner in g.ops for v in inner.inputs()}
    return kept[::-1]
