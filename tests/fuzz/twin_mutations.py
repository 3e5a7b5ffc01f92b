"""Mutations of host twins that know the format: element types, quantization parameters, shapes, arguments, constants.

A mutated file has correct lengths and hashes, so that it reaches what comes after the reader.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from edgewright.formats.twin_writer import ALIGNMENT, DTYPES, HEAD, MAGIC, VERSION

USUAL = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool")
SCALES = (0.0, -0.05, 1e-45, 1e-39, 1e-38, 1e-30, 1e-10, 0.001, 0.02, 0.5, 1.0, 3.0, 1e10, 1e30, 3e38, 1e39, 1e300)
INTEGERS = (-(2**31), -129, -128, -2, -1, 0, 1, 2, 3, 4, 7, 16, 64, 127, 128, 255, 256, 4096, 65535, 65536, 2**31 - 1,
            2**31, 2**63 - 1)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, -3e38)


@dataclass
class TwinFile:
    """The header as JSON, and the constants' bytes."""

    header: dict[str, Any]
    constants: list[bytes]

    @classmethod
    def parse(cls, data: bytes) -> TwinFile:
        length = HEAD.unpack_from(data)[2]
        start = HEAD.size + length
        header = json.loads(data[HEAD.size : start])
        start += -start % ALIGNMENT
        spans = [(start + entry["offset"], entry["size"]) for entry in header["constants"]]
        return cls(header, [data[at : at + size] for at, size in spans])

    def build(self) -> bytes:
        """The file; constants of the same bytes are stored once, as the format asks."""
        indices: dict[bytes, int] = {}
        moved = [indices.setdefault(constant, len(indices)) for constant in self.constants]
        entries, end = [], 0
        for constant in indices:
            entries.append({"sha256": hashlib.sha256(constant).hexdigest(), "offset": end, "size": len(constant)})
            end += len(constant) + -len(constant) % ALIGNMENT
        header = json.loads(json.dumps(self.header))
        for value in (value for graph in header["graphs"].values() for value in graph["values"]):
            if type(value.get("constant")) is int and 0 <= value["constant"] < len(moved):
                value["constant"] = moved[value["constant"]]
        header["constants"] = entries
        raw = json.dumps(header, separators=(",", ":")).encode()
        padding = bytes(-(HEAD.size + len(raw)) % ALIGNMENT)
        chunks = [constant + bytes(-len(constant) % ALIGNMENT) for constant in indices]
        return b"".join([HEAD.pack(MAGIC, VERSION, len(raw)), raw, padding, *chunks])


class Mutator:
    """Applies one to three mutations. ``kinds``: the operators that an operator may be replaced by."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.choices: list[tuple[int, Callable[[random.Random, dict[str, Any], TwinFile], None]]] = [
            (5, _one_type), (3, _all_of_a_type), (4, _parameters), (2, _toggle_quantized), (3, _shape),
            (6, _argument), (1, self._kind), (2, _operand), (1, _result), (3, _constant), (1, _structure),
        ]  # fmt: skip

    def __call__(self, data: bytes, chance: random.Random) -> bytes:
        file = TwinFile.parse(data)
        weights = [weight for weight, _ in self.choices]
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            mutation = chance.choices(self.choices, weights)[0][1]
            mutation(chance, file.header["graphs"][chance.choice(sorted(file.header["graphs"]))], file)
        return file.build()

    def _kind(self, chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
        if graph["ops"]:
            chance.choice(graph["ops"])["kind"] = chance.choice(self.kinds)


# ------------------------------------------------------------------------------------------------- element types


def _dtype(chance: random.Random) -> str:
    return chance.choice(USUAL) if chance.random() < 0.85 else chance.choice(sorted(DTYPES))


def _one_type(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    _retype(chance.choice(graph["values"]), _dtype(chance), file, chance.random() < 0.9)


def _all_of_a_type(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    """Every value of one element type becomes another: what holds between operands stays."""
    old, new = chance.choice(graph["values"])["dtype"], _dtype(chance)
    for value in graph["values"]:
        if value["dtype"] == old:
            _retype(value, new, file, True)


def _retype(value: dict[str, Any], new: str, file: TwinFile, consistent: bool) -> None:
    """``consistent``: the parameters' type, their range and the constant's size follow."""
    value["dtype"] = new
    if not consistent:
        return
    dtype = DTYPES[new]
    if "q" in value and dtype.kind in "iu":
        info = np.iinfo(dtype)
        value["q"] |= {"dtype": new, "qmin": int(info.min), "qmax": int(info.max)}
    _resize(value, file)


def _resize(value: dict[str, Any], file: TwinFile) -> None:
    """A constant's bytes, cut or repeated to the size of its type and shape."""
    index = value.get("constant")
    if type(index) is not int or not 0 <= index < len(file.constants) or value["dtype"] not in DTYPES:
        return
    size = DTYPES[value["dtype"]].itemsize
    for extent in value["shape"]:
        size *= extent if type(extent) is int else 0
    if not 0 <= size <= 1 << 16 or size == len(file.constants[index]):
        return
    old = file.constants[index] or b"\0"
    value["constant"] = len(file.constants)
    file.constants.append((old * (size // len(old) + 1))[:size])


# ---------------------------------------------------------------------------------------------------- quantization


def _parameters(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    found = [value for value in graph["values"] if "q" in value]
    if not found:
        return _toggle_quantized(chance, graph, file)
    value = chance.choice(found)
    q = value["q"]
    name = chance.choice(("scale", "scale", "zero_point", "zero_point", "qmin", "qmax", "axis", "block", "dynamic"))
    if name in ("scale", "zero_point"):
        new = chance.choice(SCALES if name == "scale" else INTEGERS)
        if isinstance(q.get(name), list) and q[name] and chance.random() < 0.7:
            q[name][chance.randrange(len(q[name]))] = new
        else:
            q[name] = new
    elif name == "axis":
        rank = len(value["shape"])
        q["axis"] = chance.choice((0, 1, -1, rank - 1, rank, -rank, -rank - 1))
        if chance.random() < 0.7 and 0 <= q["axis"] < rank and type(value["shape"][q["axis"]]) is int:
            count = min(value["shape"][q["axis"]], 64)
            q["scale"], q["zero_point"] = [0.02] * count, [0] * count
    elif name == "block":
        q["block"] = chance.choice((1, 2, 3, 4, 8, 16, 32, 0, -1))
    elif name == "dynamic":
        q["dynamic"] = chance.choice(("per_token", "per_tensor", "x"))
    else:
        q[name] = chance.choice(INTEGERS)
    return None


def _toggle_quantized(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    """Parameters where there were none, or none where there were."""
    value = chance.choice(graph["values"])
    if "q" in value:
        del value["q"]
        return
    dtype = DTYPES.get(value["dtype"])
    if dtype is None or dtype.kind not in "iu":
        _retype(value, chance.choice(("int8", "uint8", "int16", "uint16")), file, True)
    _quantize(value)


def _quantize(value: dict[str, Any]) -> None:
    dtype = DTYPES[value["dtype"]]
    info = np.iinfo(dtype)
    value["q"] = {"scale": 0.02, "zero_point": 0, "dtype": str(dtype), "qmin": int(info.min), "qmax": int(info.max)}


def type_variants(data: bytes) -> Iterator[bytes]:
    """Every value of a graph in turn, and all values of one type together, in every element type, quantized or not."""
    ((name, graph),) = TwinFile.parse(data).header["graphs"].items()
    values = graph["values"]
    kinds = dict.fromkeys((value["dtype"], "q" in value) for value in values)
    choices = [[n] for n in range(len(values))]
    choices += [[n for n, value in enumerate(values) if (value["dtype"], "q" in value) == kind] for kind in kinds]
    for chosen, dtype, quantized in product(choices, (*USUAL, "bfloat16", "uint32"), (False, True)):
        if quantized and DTYPES[dtype].kind not in "iu":
            continue
        file = TwinFile.parse(data)
        for value in (file.header["graphs"][name]["values"][n] for n in chosen):
            if not quantized:
                value.pop("q", None)
            _retype(value, dtype, file, True)
            if quantized and "q" not in value:
                _quantize(value)
        yield file.build()


# -------------------------------------------------------------------------------------------- shapes and arguments


def _shape(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    value = chance.choice(graph["values"])
    shape = value["shape"]
    pick = chance.random()
    if not shape or pick < 0.1:
        shape.append(chance.choice((0, 1, 2)))
    elif pick < 0.2:
        shape.pop(chance.randrange(len(shape)))
    else:
        at = chance.randrange(len(shape))
        old = shape[at] if type(shape[at]) is int else 1
        shape[at] = chance.choice((0, 1, 2, old + 1, max(old - 1, 0), old * 2, 17, 300, 100000, 2**31 - 1, -1))
    value["order"] = list(range(len(shape)))
    _resize(value, file)


def _argument(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    """A number, flag or text of an operator, wherever it is nested."""
    if not graph["ops"]:
        return
    args = chance.choice(graph["ops"])["args"]
    leaves: list[tuple[Any, Any]] = []
    _leaves(args, leaves)
    if not leaves:
        return
    holder, key = chance.choice(leaves)
    holder[key] = _other(holder[key], chance)


def _leaves(holder: Any, found: list[tuple[Any, Any]]) -> None:
    for key in holder if isinstance(holder, dict) else range(len(holder)):
        item = holder[key]
        if isinstance(item, dict | list) and not (isinstance(item, dict) and "value" in item):
            _leaves(item, found)
        elif not isinstance(item, dict):
            found.append((holder, key))


def _other(item: Any, chance: random.Random) -> Any:
    if chance.random() < 0.05:
        return chance.choice((None, "", "x", [], True, 1, 0.5, {"float": "inf"}))
    if isinstance(item, bool):
        return not item
    if isinstance(item, int):
        return chance.choice((item + 1, item - 1, -item, 2 * item, chance.choice(INTEGERS), chance.randrange(8)))
    if isinstance(item, float):
        return chance.choice((-item, item * 2, *FLOATS, {"float": "inf"}, {"float": "-inf"}, {"float": "nan"}))
    if isinstance(item, str):
        return chance.choice((*USUAL, "nearest", "bilinear", "single", "double", "RELU", "RELU6", item + "x"))
    return chance.choice((0, 1, True))


def _operand(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    if not graph["ops"]:
        return
    found: list[dict[str, Any]] = []
    _references(chance.choice(graph["ops"])["args"], found)
    if found:
        chance.choice(found)["value"] = chance.randrange(len(graph["values"]))


def _references(holder: Any, found: list[dict[str, Any]]) -> None:
    if isinstance(holder, dict) and "value" in holder:
        found.append(holder)
    elif isinstance(holder, dict | list):
        for item in holder.values() if isinstance(holder, dict) else holder:
            _references(item, found)


def _result(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    results = chance.choice((graph["inputs"], graph["outputs"], *(op["outputs"] for op in graph["ops"])))
    if results:
        results[chance.randrange(len(results))] = chance.randrange(len(graph["values"]))


# ------------------------------------------------------------------------------------------- constants, structure


def _constant(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    """Bytes of a constant, or a constant where there was none."""
    value = chance.choice(graph["values"])
    if "constant" not in value:
        value["constant"] = len(file.constants)
        file.constants.append(b"\1")
        return _resize(value, file)
    index = value["constant"]
    if not 0 <= index < len(file.constants) or not file.constants[index]:
        return None
    changed = bytearray(file.constants[index])
    width = DTYPES[value["dtype"]].itemsize if value["dtype"] in DTYPES else 1
    at = chance.randrange(len(changed) // width or 1) * width
    piece = chance.choice((b"\0" * width, b"\xff" * width, b"\x7f" * width, b"\x80" * width, chance.randbytes(width)))
    changed[at : at + width] = piece
    file.constants[index] = bytes(changed)
    return None


def _structure(chance: random.Random, graph: dict[str, Any], file: TwinFile) -> None:
    """An operator, an argument or an end goes away, or is there twice."""
    pick = chance.choice((graph["ops"], graph["inputs"], graph["outputs"]))
    if pick is graph["ops"] and pick and chance.random() < 0.6:
        args = chance.choice(pick)["args"]
        if args:
            del args[chance.choice(sorted(args))]
        return
    if pick and chance.random() < 0.5:
        pick.pop(chance.randrange(len(pick)))
    elif pick:
        pick.append(json.loads(json.dumps(chance.choice(pick))))
