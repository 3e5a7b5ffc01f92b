"""Stand-ins for AI LiteCore, compiled from C, that write down every call; and what they wrote, read back."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.backends.samsung.graph_record import GraphRecord
from tests.support.programs import require

SOURCES = Path(__file__).parent / "standin"


def build_sdk(root: Path, *flags: str, headers: dict[str, str] | None = None, keep_headers: bool = True) -> Path:
    """A folder that looks like an unpacked SDK. ``headers``: texts that replace those of the stand-in."""
    compiler = require("gcc", "it compiles the stand-in SDK")
    libraries, include = root / "lib" / "x86_64-linux", root / "include"
    libraries.mkdir(parents=True)
    shutil.copytree(SOURCES / "include", include)
    for name, text in (headers or {}).items():
        (include / name).write_text(text)
    for name in ("graph_wrapper", "graphgen_api"):
        made = str(libraries / f"lib{name}.so")
        command = [compiler, "-shared", "-fPIC", "-O1", *flags, f"-I{include}", f"-I{SOURCES}", "-o", made]
        subprocess.run([*command, str(SOURCES / f"{name}.c")], check=True, timeout=600)
    if not keep_headers:
        shutil.rmtree(include)
    return root


def calls(blob: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in blob.decode().splitlines()]


def plain(graph: GraphRecord) -> dict[str, Any]:
    """A record as the stand-ins would have heard it."""
    tensors = [
        {
            "name": t.name, "dims": t.dims, "dtype": t.dtype, "layout": t.layout,
            "data": None if t.data is None else [t.data.nbytes, fnv(t.data.tobytes())], "quantization": t.quantization,
        }
        for t in graph.tensors
    ]  # fmt: skip
    nodes = [{"name": n.name, "type": n.type, "inputs": n.inputs, "outputs": n.outputs, "params": n.params}
             for n in graph.nodes]  # fmt: skip
    return {"tensors": tensors, "nodes": nodes, "inputs": graph.inputs, "outputs": graph.outputs}


def fnv(data: bytes) -> str:
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def heard(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the stand-ins heard, as ``plain`` says it."""
    places: dict[int, int] = {}
    made: dict[str, Any] = {"tensors": [], "nodes": []}
    nodes: dict[int, dict[str, Any]] = {}
    for line in lines:
        call = line["call"]
        if call == "define_tensor":
            places[line["id"]] = len(places)
            kept = {key: line[key] for key in ("name", "dims", "dtype", "layout")}
            made["tensors"].append({**kept, "data": None, "quantization": None})
        elif call == "set_data":
            made["tensors"][places[line["id"]]]["data"] = [line["bytes"], line["fnv"]]
        elif call == "set_quantize_param":
            assert (line["scales"]["type"], line["zero_points"]["type"]) == ("FLOAT32", "INT32")
            scales = [float(np.float32(scale)) for scale in line["scales"]["value"]]
            numbers = (line["type"], scales, line["zero_points"]["value"])
            made["tensors"][places[line["id"]]]["quantization"] = numbers
        elif call == "define_op":
            ends = {side: [places[i] for i in line[side]] for side in ("inputs", "outputs")}
            nodes[line["id"]] = {"name": line["name"], "type": line["type"], **ends, "params": {}}
            made["nodes"].append(nodes[line["id"]])
        elif call == "add_param":
            param = line["param"]
            value = param["value"][0] if param["scalar"] else param["value"]
            nodes[line["id"]]["params"][line["key"]] = value
        elif call in ("inputs", "outputs"):
            made[call] = [places[i] for i in line["ids"]]
    return made
