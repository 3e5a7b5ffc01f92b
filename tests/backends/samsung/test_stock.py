"""Graphs beside those that stock's software describes to AI LiteCore for the same models. What differs is listed here,
with the reason; everything else is the same: types, order, parameters, tensors, the bytes of constants."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgewright.backends.samsung import quantize_module
from edgewright.backends.samsung.graph_record import record_graph
from tests.backends.samsung.networks import device_graphs
from tests.backends.samsung.standin_sdk import plain
from tests.backends.samsung.stock_models import calibration, make

STOCK = json.loads((Path(__file__).parents[2] / "golden" / "samsung" / "graphs.json").read_text())

# By model: what stock says, what we say instead, and why.
DIFFERENCES: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "pyramid A8W8": [
        (
            "stock does not quantize pixel_shuffle, and leaves its result real without converting it",
            ["DEPTH_TO_SPACE INT8 -> FLOAT32", "out FLOAT32"],
            ["DEPTH_TO_SPACE INT8 -> INT8", "DEQUANTIZE INT8 -> FLOAT32", "out FLOAT32"],
        )
    ],
    "attention A8W8": [
        (
            "a sum's operands have scales of their own; stock's share the sum's",
            ["QUANTIZE FLOAT32 -> INT8"],
            ["QUANTIZE FLOAT32 -> INT8"],
        )
    ],
    "moves": [
        (
            "an activation follows its convolution at once, before the image is a sequence again",
            [],
            ["RELU FLOAT32 -> FLOAT32"],
        ),
        ("the same", ["RELU FLOAT32 -> FLOAT32"], []),
    ],
    "functions": [
        (
            "a slope has a dimension, as every other number alone has",
            ["PRELU FLOAT32 FLOAT32 -> FLOAT32"],
            ["PRELU FLOAT32 FLOAT32 -> FLOAT32"],
        )
    ],
}
# Batch norms are folded in double precision here, in single by stock: weights differ in their last bits.
FOLDED = ("inverted",)


def lines(graph: Any, with_bytes: bool) -> list[str]:
    """A graph in lines that name tensors by what they are."""

    def tensor(place: int) -> str:
        held = graph["tensors"][place]
        scales = held["quantization"]
        told = "" if scales is None else f"({scales[0]} {len(scales[1])})"
        data = held["data"]
        known = "" if data is None else f"={data[0]}" + (f":{data[1]}" if with_bytes else "")
        return f"{held['dtype']}{held['dims']}{held['layout']}{told}{known}"

    def side(places: list[int]) -> str:
        return " ".join(map(tensor, places))

    nodes = [f"{n['type']} {json.dumps(n['params'], sort_keys=True)} {side(n['inputs'])} -> {side(n['outputs'])}"
             for n in graph["nodes"]]  # fmt: skip
    return [f"in {side(graph['inputs'])}", *nodes, f"out {side(graph['outputs'])}"]


def links(graph: Any) -> list[list[int]]:
    """Which tensors each node reads, by the number of the node that makes them (-1: none)."""
    makers = {place: i for i, n in enumerate(graph["nodes"]) for place in n["outputs"]}
    return [[makers.get(place, -1) for place in n["inputs"]] for n in graph["nodes"]]


def short(line: str) -> str:
    """A line without sizes and parameters."""
    return re.sub(r" +", " ", re.sub(r"\{.*?\}|\[.*?\]\w+(\(.*?\))?(=[\w:]+)?", " ", line)).strip()


def differences(theirs: list[str], ours: list[str]) -> list[tuple[list[str], list[str]]]:
    matcher = difflib.SequenceMatcher(None, theirs, ours, autojunk=False)
    return [
        ([short(x) for x in theirs[a:b]], [short(x) for x in ours[c:d]])
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("key", STOCK)
def test_graphs_are_stocks_but_for_what_is_listed(key: str) -> None:
    name, _, precision = key.partition(" ")
    model, inputs = make(name)
    if precision:
        model = quantize_module(model, inputs, calibration(inputs), precision)
    (made,) = device_graphs(model, inputs)
    (stock,) = STOCK[key]
    ours = json.loads(json.dumps(plain(record_graph(made))))
    found = differences(*(lines(graph, key not in FOLDED) for graph in (stock, ours)))
    assert found == [(theirs, own) for _, theirs, own in DIFFERENCES.get(key, [])]
    if key not in DIFFERENCES:
        assert links(ours) == links(stock)
