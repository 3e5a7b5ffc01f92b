"""``edgewright size``: file size by part, tensor and delegate."""

from __future__ import annotations

import argparse
import json
from typing import Any

from edgewright.cli.inspect import gather
from edgewright.cli.npu_layers import npu_layers, show_npu_layers
from edgewright.console import console, table
from edgewright.errors import UsageError
from edgewright.formats.ptd import read_data
from edgewright.formats.pte_reader import read_program
from edgewright.lowering.estimates import npu_memory
from edgewright.report.collect import delegate_contents
from edgewright.report.file_facts import file_parts
from edgewright.report.layer_sizes import NO_LAYER, DelegateBytes, by_layer, delegate_bytes
from edgewright.runtime.twin_delegate import find_twin_file
from edgewright.units import share, size

EXAMPLES = """examples:
  edgewright size m.pte
  edgewright size m.pte --top 50
  edgewright size m.pte --json | jq '.parts'
"""
_TOP = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="the program")
    add("--data", action="append", default=[], metavar="w.ptd", help="external weights; repeatable")
    add("--top", type=int, default=_TOP, metavar="N", help=f"show the N largest layers and tensors (default: {_TOP})")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    contents = gather(args.model, args.data)
    if contents["format"] != "pte":
        raise UsageError(
            args.model, "must be a .pte", value=contents["format"], remedy="`edgewright inspect` shows other formats."
        )
    delegates = _delegate_layers(args)
    facts = {
        "file": contents["file"],
        "bytes": contents["bytes"],
        "parts": file_parts(contents),
        "delegates": [{"method": m["name"], **_delegate(d)} for m in contents["methods"] for d in m["delegates"]],
        "layers": [{"method": d.method, "delegate": d.index, "bytes": d.total, "layers": d.layers} for d in delegates],
        "tensors": [t for t in contents["tensors"] if t["bytes"]],
        "memory": {m["name"]: {"planned": m["planned_bytes"], "constants": m["constant_bytes"]}
                   for m in contents["methods"]},
        "npu_bytes": _npu_memory(contents["manifest"]),
        "npu_layers": npu_layers(args.model),
    }  # fmt: skip
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _show(facts, by_layer(delegates), args.top)
    return 0


def _delegate_layers(args: argparse.Namespace) -> list[DelegateBytes]:
    program = read_program(args.model)
    external = {key: entry for path in args.data for key, entry in read_data(path).items()}
    return delegate_bytes(program, delegate_contents(program, find_twin_file(args.model), external))


def _npu_memory(manifest: dict[str, Any] | None) -> int:
    """Bytes that delegates need beside planned memory, as the manifest has them; it is not trusted."""
    listed = (manifest or {}).get("estimates")
    return npu_memory(e for e in listed if isinstance(e, dict)) if isinstance(listed, list) else 0


def _delegate(facts: dict[str, Any]) -> dict[str, Any]:
    return {"id": facts["id"], "bytes": facts["bytes"], "calls": facts["calls"]}


def _show(facts: dict[str, Any], layers: dict[str, int], top: int) -> None:
    out, total = console(), facts["bytes"] or 1
    out.print(f"{facts['file']}: {size(facts['bytes'])}", style="bold", soft_wrap=True)
    rows = [(name, size(count), share(count / total)) for name, count in facts["parts"].items()]
    out.print(table("", ("part", ">bytes", ">share"), rows, flexible="part"))
    if facts["delegates"]:
        lines = [(d["method"], d["id"], d["calls"], size(d["bytes"])) for d in facts["delegates"]]
        out.print(table("delegates", ("method", "delegate", ">calls", ">bytes"), lines))
    if layers:
        _show_layers(layers, total, top)
    show_npu_layers(facts["npu_layers"])
    tensors = facts["tensors"]
    if tensors:
        lines = [(_name(t), t["kind"], f"{t['type']}{t['shape']}", size(t["bytes"])) for t in tensors[:top]]
        rest = tensors[top:]
        if rest:
            lines.append((f"{len(rest)} more", "", "", size(sum(t["bytes"] for t in rest))))
        out.print(table("tensors", ("tensor", "kind", "type", ">bytes"), lines, flexible="tensor"))
    needs = [(n, size(m["planned"]), size(m["constants"])) for n, m in facts["memory"].items()]
    out.print(table("memory to run", ("method", ">planned", ">constants"), needs))
    if facts["npu_bytes"]:
        out.print(
            f"\nand {size(facts['npu_bytes'])} of the NPU's memory, by its compiler or an estimate", soft_wrap=True
        )


def _show_layers(layers: dict[str, int], total: int, top: int) -> None:
    """Print the bytes of delegates by layer: the largest, what is left, and what belongs to none."""
    other = {name: layers[name] for name in NO_LAYER if name in layers}
    named = {name: count for name, count in layers.items() if name not in other}
    rows = list(named.items())[:top]
    rest = len(named) - len(rows)
    if rest:
        rows.append((f"{rest} more", sum(list(named.values())[top:])))
    cells = [(name, size(count), share(count / total)) for name, count in [*rows, *other.items()]]
    console().print(table("delegates by layer", ("layer", ">bytes", ">share"), cells, flexible="layer"))


def _name(tensor: dict[str, Any]) -> str:
    if tensor["name"]:
        return str(tensor["name"])
    use = tensor["used_by"] or {}
    return f"{use['argument']} of {use['layer'] or use['operator']}" if use else f"constant {tensor['index']}"
