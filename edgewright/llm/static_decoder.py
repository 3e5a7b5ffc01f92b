"""The decoder in fixed shapes, with caches and masks as inputs and outputs: what NPUs run.

One definition serves numpy, with floats or with fake quantization (``static_reference.py``), and the graph of a device
(``qnn_graph.py``): ``Operators`` computes or builds. A name identifies the result of an operator, whose range is
observed in calibration; results of one name have one encoding. Data movement keeps the encoding of its operand.

Keys are transposed, ``[1, G, D, length]``, and values are ``[1, G, length, D]``, for G key and value heads. The query
heads that share a key head are rows of one product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from edgewright.ir.graph import QParams
from edgewright.llm.config import DecoderConfig
from edgewright.llm.rope import Rope

T = TypeVar("T")
Array = np.ndarray[Any, Any]

UINT16, UINT8 = np.dtype(np.uint16), np.dtype(np.uint8)
MIDPOINT = 1 << 15
MAX_SYMMETRIC = 32639  # largest 16-bit weight or right operand of a product that the HTP multiplies exactly
PROBABILITY = QParams(1 / 65536, 0, UINT16, 0, 65535)  # of sigmoid and softmax
TANH = QParams(1 / 32768, MIDPOINT, UINT16, 0, 65535)
MASK = "mask"
MASK_MARGIN = 20.0  # masked scores are this far below all others: their probability is exactly 0
_MARGIN = 1.1  # ranges beyond what calibration saw
_MIN_REACH = 1e-6


class Operators(Protocol[T]):
    """What the decoder is made of. ``name`` is that of the result, and of the weights where there are any."""

    def rows(self, name: str, index: T) -> T:
        """Rows of a table: [1, A] gives [1, A, columns]."""

    def linear(self, name: str, x: T) -> T: ...

    def norm(self, name: str, x: T) -> T:
        """RMS norm of the last dimension."""

    def binary(self, kind: str, name: str, x: T, y: T) -> T:
        """``add``, ``sub`` or ``mul``, broadcasting."""

    def unary(self, kind: str, name: str, x: T) -> T:
        """``sigmoid``, ``tanh``, ``gelu`` or ``gelu_tanh``."""

    def masked_scores(self, name: str, query: T, keys: T, mask: T, heads: int) -> T:
        """Products [1, heads, A, C] of queries [1, G, heads / G * A, D] and keys [1, G, D, C], very negative where
        ``mask`` [1, 1, A, C] excludes a position."""

    def softmax(self, x: T) -> T: ...

    def matmul(self, name: str, x: T, y: T) -> T: ...

    def convert(self, name: str, x: T) -> T:
        """The same numbers in the encoding of ``name``."""

    def reshape(self, x: T, shape: Sequence[int]) -> T: ...

    def transpose(self, x: T, dims: Sequence[int]) -> T: ...

    def columns(self, x: T, start: int, end: int) -> T:
        """A slice of the last dimension."""

    def concat(self, name: str, parts: Sequence[T], axis: int) -> T: ...


@dataclass(frozen=True)
class Call(Generic[T]):
    """Inputs of a call of ``length`` tokens. ``masks``: of full and of sliding layers. ``caches``: keys and values of
    the positions before, by layer; none if there are no positions before."""

    length: int
    rotations: Mapping[Rope, tuple[T, T]]
    masks: tuple[T, T]
    caches: Mapping[int, tuple[T, T]]


class StaticDecoder(Generic[T]):
    def __init__(self, config: DecoderConfig, operators: Operators[T]) -> None:
        self.config, self.ops = config, operators

    def embed(self, tokens: T, length: int) -> T:
        """The hidden states [1, 1, A, dim] before the first layer."""
        return self.ops.reshape(self.ops.rows("embedding", tokens), (1, 1, length, self.config.dim))

    def rotations(self, positions: T, length: int, used: Collection[Rope] | None = None) -> dict[Rope, tuple[T, T]]:
        """Cosines and sines [1, A, 1, dim / 2] by rotation; ``used``: by default those of all layers."""
        result = {}
        for rope, (cos, sin) in rotation_names(self.config).items():
            if used is None or rope in used:
                shape = (1, length, 1, rope.dim // 2)
                rows = [self.ops.reshape(self.ops.rows(name, positions), shape) for name in (cos, sin)]
                result[rope] = rows[0], rows[1]
        return result

    def layer(self, index: int, hidden: T, call: Call[T]) -> tuple[T, T, T]:
        """The hidden states after a layer, and the keys and values of the call."""
        ops, config, prefix = self.ops, self.config, f"layers.{index}"
        normed = ops.norm(f"{prefix}.attention_norm", hidden)
        query, key, value = (ops.linear(f"{prefix}.{name}", normed) for name in "qkv")
        key, value = self._new_rows(index, key, value, call)
        attended = self._attend(index, query, key, value, call)
        projected = ops.linear(f"{prefix}.o", attended)
        if config.post_norms:
            projected = ops.norm(f"{prefix}.attention_post_norm", projected)
        hidden = ops.binary("add", f"{prefix}.attention_sum", hidden, projected)
        projected = self._feed_forward(prefix, ops.norm(f"{prefix}.ffn_norm", hidden))
        if config.post_norms:
            projected = ops.norm(f"{prefix}.ffn_post_norm", projected)
        return ops.binary("add", f"{prefix}.sum", hidden, projected), key, value

    def logits(self, hidden: T, length: int) -> T:
        """[1, A, V]; divided by the cap of logits if there is one, so that they are below 1."""
        logits = self.ops.linear("head", self.ops.norm("norm", hidden))
        if self.config.logit_softcap is not None:
            logits = self.ops.unary("tanh", "logits", logits)
        return self.ops.reshape(logits, (1, length, self.config.vocab_size))

    # ----------------------------------------------------------------------------------------------------- attention

    def _new_rows(self, index: int, key: T, value: T, call: Call[T]) -> tuple[T, T]:
        """The keys, rotated, and values of the call, as caches store them."""
        ops, config, prefix = self.ops, self.config, f"layers.{index}"
        shape = (1, call.length, config.kv_heads, config.head_dim)
        rotated = self._rotate(index, "k", "key", ops.reshape(key, shape), call)
        keys = ops.transpose(rotated, (0, 2, 3, 1))
        values = ops.transpose(ops.reshape(value, shape), (0, 2, 1, 3))
        return ops.convert(f"{prefix}.cached_key", keys), ops.convert(f"{prefix}.cached_value", values)

    def _attend(self, index: int, query: T, key: T, value: T, call: Call[T]) -> T:
        ops, config, prefix = self.ops, self.config, f"layers.{index}"
        heads, groups, size, length = config.heads, config.kv_heads, config.head_dim, call.length
        rotated = self._rotate(index, "q", "query", ops.reshape(query, (1, length, heads, size)), call)
        rows = ops.reshape(ops.transpose(rotated, (0, 2, 1, 3)), (1, groups, heads // groups * length, size))
        if index in call.caches:
            keys, values = call.caches[index]
            key = ops.concat(f"{prefix}.cached_key", [keys, key], 3)
            value = ops.concat(f"{prefix}.cached_value", [values, value], 2)
        mask = call.masks[1 if config.is_sliding(index) else 0]
        shares = ops.softmax(ops.masked_scores(f"{prefix}.scores", rows, key, mask, heads))
        shares = self._as_rows(shares, rows, call)
        attended = ops.matmul(f"{prefix}.attended", shares, value)
        by_token = ops.transpose(ops.reshape(attended, (1, heads, length, size)), (0, 2, 1, 3))
        return ops.reshape(by_token, (1, 1, length, heads * size))

    def _as_rows(self, shares: T, rows: T, call: Call[T]) -> T:
        """[1, heads, A, C] as [1, G, heads / G * A, C]."""
        config = self.config
        columns = int(shares.shape[-1])  # type: ignore[attr-defined]
        return self.ops.reshape(shares, (1, config.kv_heads, config.heads // config.kv_heads * call.length, columns))

    def _rotate(self, index: int, source: str, name: str, heads: T, call: Call[T]) -> T:
        """Norm and rotation of heads [1, A, n, D]."""
        ops, config, prefix = self.ops, self.config, f"layers.{index}"
        if config.qk_norm:
            heads = ops.norm(f"{prefix}.{source}_norm", heads)
        rope = config.layer_rope(index)
        cos, sin = call.rotations[rope]
        half = rope.dim // 2
        first, second = ops.columns(heads, 0, half), ops.columns(heads, half, rope.dim)
        products = {
            part: ops.binary("mul", f"{prefix}.{name}_{part}", x, y)
            for part, x, y in (("a", first, cos), ("b", second, sin), ("c", second, cos), ("d", first, sin))
        }
        result = f"{prefix}.{name}"
        parts = [
            ops.binary("sub", result, products["a"], products["b"]),
            ops.binary("add", result, products["c"], products["d"]),
        ]
        if rope.dim < config.head_dim:
            parts.append(ops.convert(result, ops.columns(heads, rope.dim, config.head_dim)))
        return ops.concat(result, parts, 3)

    def _feed_forward(self, prefix: str, x: T) -> T:
        ops = self.ops
        gate, up = ops.linear(f"{prefix}.gate", x), ops.linear(f"{prefix}.up", x)
        if self.config.activation == "silu":
            active = ops.binary("mul", f"{prefix}.active", gate, ops.unary("sigmoid", f"{prefix}.sigmoid", gate))
        else:
            active = ops.unary(self.config.activation, f"{prefix}.active", gate)
        return ops.linear(f"{prefix}.down", ops.binary("mul", f"{prefix}.product", active, up))


def rotation_names(config: DecoderConfig) -> dict[Rope, tuple[str, str]]:
    """The tables of each rotation: names of cosines and sines."""
    ropes = dict.fromkeys(config.layer_rope(layer) for layer in range(config.layers))
    return {rope: (f"cos{number}", f"sin{number}") for number, rope in enumerate(ropes)}


# ---------------------------------------------------------------------------------------------------------- encodings


class Ranges:
    """Smallest and largest numbers of each tensor."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[float, float]] = {}

    def observe(self, name: str, x: Array) -> None:
        low, high = self._ends.get(name, (0.0, 0.0))
        self._ends[name] = min(low, float(x.min())), max(high, float(x.max()))

    def encodings(self, kv_bits: int) -> dict[str, QParams]:
        """The encoding of each tensor: uint16, symmetric where an operator of the HTP needs that."""
        result = {}
        for name, (low, high) in self._ends.items():
            kind = name.rpartition(".")[2]
            if kind in ("key", "v"):
                reach = max(-low, high, _MIN_REACH) * _MARGIN
                result[name] = QParams(reach / MAX_SYMMETRIC, MIDPOINT, UINT16, 0, 65535)
                cached = f"{name.rpartition('.')[0]}.cached_{'key' if kind == 'key' else 'value'}"
                result[cached] = QParams(reach / 127, 128, UINT8, 0, 255) if kv_bits == 8 else result[name]
            else:
                result[name] = _asymmetric(low * _MARGIN - (MASK_MARGIN if kind == "scores" else 0), high * _MARGIN)
        scores = [ends for name, ends in self._ends.items() if name.endswith(".scores")]
        lowest, highest = min(low for low, _ in scores), max(high for _, high in scores)
        result[MASK] = _asymmetric(lowest * _MARGIN - MASK_MARGIN, max(highest, _MIN_REACH) * _MARGIN)
        return result


def logits_encoding(config: DecoderConfig, encodings: Mapping[str, QParams]) -> QParams:
    """The encoding by which a program's logits are the model's."""
    cap = config.logit_softcap
    return encodings["head"] if cap is None else replace(TANH, scale=cap * float(np.asarray(TANH.scale)))


def _asymmetric(low: float, high: float) -> QParams:
    scale = max(high - low, _MIN_REACH) / 65535
    return QParams(scale, round(-low / scale), UINT16, 0, 65535)
