"""``edgewright llm compile``: a GGUF file or a Hugging Face folder to a program."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from edgewright.backends.qualcomm.target import QcomChipset
from edgewright.console import clean, console, progress, table
from edgewright.errors import UsageError
from edgewright.hints import not_among
from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.compile import SMALL, compile_checkpoint
from edgewright.llm.compile_qualcomm import QualcommOptions, compile_for_qualcomm
from edgewright.llm.perplexity import CALIBRATED, FLOAT, NEAREST, ORIGINAL, SEARCHED, STATIC, TOKENS, Perplexity
from edgewright.llm.program_file import LlmReport
from edgewright.llm.static_weights import KV_BITS, STATIC_PRECISIONS, StaticPrecision
from edgewright.llm.weights import CACHE_PRECISIONS, GROUP_SIZES, LINEAR_PRECISIONS, TABLE_PRECISIONS, Precision
from edgewright.units import duration, number, share, size

EXAMPLES = """examples:
  edgewright llm compile SmolLM2-135M-Instruct.gguf -o smol.pte
  edgewright llm compile Qwen2.5-0.5B-Instruct/ -o qwen.pte --group-size 64 --max-context-len 4096
  edgewright llm compile model.gguf -o exact.pte --quantize fp32
  edgewright llm compile model.gguf -o m.pte --calibrate some.txt --perplexity another.txt
  edgewright llm compile model.gguf -o phone.pte --target sm8650 --quantize 16a8w --max-context-len 1024
"""
XNNPACK = "xnnpack"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("action", choices=("compile",), help="compile: write a program")
    add("checkpoint", metavar="CHECKPOINT", help="a GGUF file, or a folder with config.json and safetensors")
    add("-o", "--output", required=True, metavar="m.pte", help="where to write the program")
    add("--target", default=XNNPACK, metavar="T", help="xnnpack (default), or a SoC of Qualcomm, such as sm8650")
    add(
        "--quantize", choices=(*LINEAR_PRECISIONS, *STATIC_PRECISIONS),
        help="precision of linear layers (default: 8da4w, but int8 for less than 500 million parameters, unless the "
             "checkpoint is in Q4_0, or --calibrate or --group-size is given; on Qualcomm's SoCs 16a4w)",
    )  # fmt: skip
    add("--group-size", type=int, choices=GROUP_SIZES, help="4-bit weights that share a scale (default: 32)")
    add("--embedding", choices=TABLE_PRECISIONS, help="precision of the embedding (default: int8; fp32 with fp32)")
    add("--head", choices=TABLE_PRECISIONS, help="precision of the output head (default: int8; fp32 with fp32)")
    add(
        "--kv-cache", choices=CACHE_PRECISIONS,
        help="precision of keys and values in the cache (default: int8; fp32 with fp32)",
    )  # fmt: skip
    add("--max-seq-len", type=int, metavar="N", help="tokens of one call (default: 512; on Qualcomm's SoCs 32)")
    add("--max-context-len", type=int, metavar="N", help="positions of the cache (default: 2048, or the model's)")
    add(
        "--calibrate", metavar="TEXT",
        help="round 4-bit weights by what this text makes of them (GPTQ), which takes minutes (default: a text of "
             "ours for less than 500 million parameters, and on Qualcomm's SoCs, where ranges of activations are "
             "observed on it, too)",
    )  # fmt: skip
    add("--no-calibrate", action="store_true", help="do not calibrate 4-bit weights: faster, and less accurate")
    add("--perplexity", metavar="TEXT", help="measure the perplexity of this text, beside the checkpoint's own")
    add(
        "--perplexity-tokens", type=int, default=TOKENS, metavar="N",
        help=f"measure on the first N tokens of the text (default: {TOKENS})",
    )  # fmt: skip
    add("--json", action="store_true", help="print the report as JSON")
    qualcomm = parser.add_argument_group("Qualcomm's SoCs").add_argument
    qualcomm("--kv-bits", type=int, choices=KV_BITS, help="bits of keys and values in the cache (default: 16)")
    qualcomm("--shards", type=int, metavar="N", help="divide the layers among N contexts (default: as few as fit)")
    qualcomm(
        "--no-weight-sharing", action="store_true",
        help="store the weights of both methods: Qualcomm's emulator runs the program, and it is larger",
    )  # fmt: skip
    qualcomm(
        "--simulate-only", action="store_true",
        help="write a program that runs on this machine and never on a device; needs no library of Qualcomm",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    compile_for = _compile_for_xnnpack if args.target.lower() == XNNPACK else _compile_for_qualcomm
    socs = [soc.name for soc in QcomChipset]
    if compile_for is _compile_for_qualcomm and args.target.upper() not in socs:
        raise not_among("--target", args.target, [XNNPACK, *socs])
    checkpoint = open_checkpoint(args.checkpoint)
    with progress("layers", checkpoint.config.layers, quiet=args.quiet or args.json) as step:
        report = compile_for(args, checkpoint, step)
    if args.json:
        print(json.dumps(_facts(report)))
    elif not args.quiet:
        _show(report)
    return 0


def _compile_for_xnnpack(args: argparse.Namespace, checkpoint: Checkpoint, step: Callable[[], None]) -> LlmReport:
    for option, value in (("--kv-bits", args.kv_bits), ("--shards", args.shards),
                          ("--no-weight-sharing", args.no_weight_sharing),
                          ("--simulate-only", args.simulate_only)):  # fmt: skip
        if value:
            raise UsageError(option, "is for Qualcomm's SoCs", remedy="Add --target, such as sm8650.")
    if args.calibrate is not None and args.no_calibrate:
        raise UsageError("--no-calibrate", "contradicts --calibrate", value=args.calibrate)
    linear = args.quantize or _default_precision(checkpoint, args)
    if linear not in LINEAR_PRECISIONS:
        raise UsageError("--quantize", f"must be {', '.join(LINEAR_PRECISIONS)} for {XNNPACK}", value=linear)
    tables = "fp32" if linear == "fp32" else "int8"
    group_size, embedding, head = args.group_size or 32, args.embedding or tables, args.head or tables
    precision = Precision(linear, group_size, embedding, head, args.kv_cache or "")
    return compile_checkpoint(
        checkpoint, args.output, precision, max_seq_len=args.max_seq_len, max_context_len=args.max_context_len,
        calibrate=False if args.no_calibrate else args.calibrate, perplexity=args.perplexity,
        perplexity_tokens=args.perplexity_tokens, on_layer=step,
    )  # fmt: skip


def _default_precision(checkpoint: Checkpoint, args: argparse.Namespace) -> str:
    """4 bits, unless they cost a model much of its quality and nothing asks for them."""
    is_q4_0 = any(tensor.kind == "Q4_0" for tensor in checkpoint.tensors.values())
    asked = args.calibrate is not None or args.group_size is not None or is_q4_0
    return "int8" if checkpoint.parameters < SMALL and not asked else "8da4w"


def _compile_for_qualcomm(args: argparse.Namespace, checkpoint: Checkpoint, step: Callable[[], None]) -> LlmReport:
    linear = args.quantize or "16a4w"
    if linear not in STATIC_PRECISIONS:
        raise UsageError("--quantize", f"must be {' or '.join(STATIC_PRECISIONS)} for {args.target}", value=linear)
    if args.no_calibrate:
        raise UsageError(
            "--no-calibrate", f"is not for {args.target}", remedy="Ranges of activations are always observed."
        )
    if args.embedding is not None:
        raise UsageError("--embedding", f"is not for {args.target}: it has 16 bits, as all activations do")
    if args.kv_cache is not None:
        raise UsageError("--kv-cache", f"is not for {args.target}", remedy="Use --kv-bits.")
    precision = StaticPrecision(linear, args.group_size or 32, args.head or "int8", args.kv_bits or 16)
    sharing, simulate_only = not args.no_weight_sharing, args.simulate_only
    options = QualcommOptions(args.shards, weight_sharing=sharing, simulate_only=simulate_only)
    return compile_for_qualcomm(
        checkpoint, args.output, args.target, precision, options=options, prefill_len=args.max_seq_len,
        max_context_len=args.max_context_len, calibrate=args.calibrate, perplexity=args.perplexity,
        perplexity_tokens=args.perplexity_tokens, on_layer=step,
    )  # fmt: skip


def _facts(report: LlmReport) -> dict[str, Any]:
    parts = {
        name: {"precision": part.precision, "parameters": part.parameters, "bytes": part.bytes,
               "relative_error": part.relative_error, "groups": part.groups, "carried_groups": part.carried_groups}
        for name, part in report.parts.items()
    }  # fmt: skip
    measured = report.perplexity
    perplexity = None if measured is None else {
        "tokens": measured.tokens, "program": measured.program, "values": dict(measured.values),
    }  # fmt: skip
    return {
        "file": str(report.path), "tokenizer": None if report.tokenizer is None else str(report.tokenizer),
        "chat_template": report.has_chat_template, "family": report.family, "parameters": report.parameters,
        "bytes": report.size, "seconds": report.seconds, "max_seq_len": report.max_seq_len,
        "max_context_len": report.max_context_len, "parts": parts,
        "calibrated_tokens": report.calibrated_tokens, "perplexity": perplexity, "target": report.target,
        "shards": report.shards, "twin": None if report.twin is None else str(report.twin),
        "compiler": report.compiler,
    }  # fmt: skip


def _show(report: LlmReport) -> None:
    out = console()
    rows = [
        (name, part.precision, number(part.parameters / 1e6), size(part.bytes),
         share(part.relative_error) if part.energy else "-")
        for name, part in report.parts.items()
    ]  # fmt: skip
    title = f"{report.family}, {number(report.parameters / 1e6)} million parameters"
    out.print(table(title, ["part", "precision", ">million weights", ">size", ">rms error"], rows))
    if report.perplexity is not None:
        _show_perplexity(report.perplexity)
    for name, part in report.parts.items():
        if part.carried_groups > 0:
            carried = f"{name}: {share(part.carried_groups / part.groups)} of groups keep the checkpoint's integers"
            why = " or make up for errors of others" if report.calibrated_tokens else ""
            rest = f"; the others need +8, which 4-bit weights of XNNPACK lack,{why} and were rounded again"
            out.print(carried + (rest if part.carried_groups < part.groups else ""), soft_wrap=True)
    out.print(f"calls of up to {report.max_seq_len} tokens, a context of {report.max_context_len}", soft_wrap=True)
    if report.target != XNNPACK:
        contexts = "one context" if report.shards == 1 else f"{report.shards} contexts"
        calibrated = f"calibrated on {report.calibrated_tokens} tokens"
        out.print(f"{report.target}: prefill_forward and kv_forward in {contexts}; {calibrated}", soft_wrap=True)
        if report.compiler:
            out.print(f"compiled by {report.compiler}: the device needs the same or a newer release", soft_wrap=True)
    written = f"wrote {clean(report.path)} ({size(report.size)}) in {duration(report.seconds)}"
    beside = [clean(path) for path in (report.tokenizer, report.twin) if path is not None]
    out.print(", and ".join([written, *beside]), soft_wrap=True)
    if report.tokenizer is None:
        out.print("the checkpoint has no tokenizer: pass one to chat and generate", style="yellow", soft_wrap=True)
    four_bits = any(part.precision.startswith("int4") for part in report.parts.values())
    if report.target == XNNPACK and report.calibrated_tokens:
        out.print(f"4-bit weights were calibrated on {report.calibrated_tokens} tokens", soft_wrap=True)
    if report.target == XNNPACK and four_bits and report.parameters < SMALL and not report.calibrated_tokens:
        hint = "4 bits cost a small model much quality: --calibrate TEXT recovers a part of it, --quantize int8 most"
        out.print(hint, style="yellow", soft_wrap=True)


_ROUNDING = {
    ORIGINAL: "the checkpoint's own values", NEAREST: "rounded to nearest", SEARCHED: "scales searched by group",
    CALIBRATED: "calibrated on a text (GPTQ)", FLOAT: "float linear layers",
    STATIC: "rounded, and 16-bit activations",
}  # fmt: skip


def _show_perplexity(measured: Perplexity) -> None:
    original = measured.values[ORIGINAL]
    rows = [
        (_ROUNDING[key] + (", in the file" if key == measured.program else ""), f"{value:.2f}",
         "" if key == ORIGINAL else f"{(value / original - 1) * 100:+.1f} %")
        for key, value in measured.values.items()
    ]  # fmt: skip
    title = f"perplexity of {measured.tokens} tokens"
    console().print(table(title, ["weights", ">perplexity", ">to original"], rows))
