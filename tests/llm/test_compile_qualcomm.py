"""Language models for Qualcomm's SoCs: tokens of the host twin and of the emulator are the fake-quantized model's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright import llm
from edgewright.backends.qualcomm.blob import read_blob
from edgewright.backends.qualcomm.delegate import CHOICE
from edgewright.backends.qualcomm.options import read_options
from edgewright.backends.qualcomm.qnn.info import BinaryReader, spill_bytes
from edgewright.errors import UsageError
from edgewright.formats.pte_reader import read_program
from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.compile_qualcomm import (
    QualcommOptions,
    calibration_windows,
    compile_for_qualcomm,
    language_model_socs,
    observe,
)
from edgewright.llm.decoders import open_decoder
from edgewright.llm.perplexity import ORIGINAL, STATIC
from edgewright.llm.static_decoder import StaticDecoder
from edgewright.llm.static_reference import NumpyOperators, ReferenceDecoder
from edgewright.llm.static_weights import QuantizedCheckpoint, StaticPrecision
from edgewright.llm.vocabulary import Vocabulary
from edgewright.runtime import Runtime
from tests.cli.cli import Cli
from tests.llm.tiny_model import checkpoint as tiny_checkpoint
from tests.llm.tiny_model import tiny_json
from tests.support.language_models import RecordedModel, gguf_of

CONTEXT, PREFILL, GENERATED = 40, 8, 10
HOST = QualcommOptions(simulate_only=True)


def reference_tokens(
    source: Checkpoint, precision: StaticPrecision, windows: np.ndarray, prompt: Sequence[int], context: int = CONTEXT
) -> list[int]:
    """Greedy tokens of the fake-quantized model, which has no cache."""
    weights = QuantizedCheckpoint(source, precision, context)
    encodings = observe(source, weights, windows, precision.kv_bits, lambda: None)
    operators = NumpyOperators(weights, encodings=encodings)
    decoder, tokens = ReferenceDecoder(StaticDecoder(source.config, operators), operators), list(prompt)
    for _ in range(GENERATED):
        tokens.append(int(decoder.run(np.array([tokens]))[0][-1].argmax()))
    return tokens[len(prompt) :]


def greedy(path: Path, prompt: Sequence[int]) -> list[int]:
    """Greedy tokens of a program: the prompt in blocks, then one by one."""
    decoder = open_decoder(Runtime.get().load_program(path))
    logits = decoder.forward(prompt, 0)
    tokens: list[int] = []
    for _ in range(GENERATED):
        tokens.append(int(logits.argmax()))
        logits = decoder.forward(tokens[-1:], len(prompt) + len(tokens) - 1)
    decoder.close()
    return tokens


def compiled(source: Any, path: Path, windows: np.ndarray, precision: StaticPrecision, **more: Any) -> Any:
    options = {"prefill_len": PREFILL, "max_context_len": CONTEXT, "vocabulary": Vocabulary(), "options": HOST, **more}
    return compile_for_qualcomm(source, path, "sm8650", precision, calibrate=windows, **options)


CASES = {
    "llama": ("llama", StaticPrecision(), {}),
    "an 8-bit cache": ("smollm2", StaticPrecision("16a8w", kv_bits=8), {}),
    "qwen2": ("qwen2", StaticPrecision(), {}),
    "qwen3": ("qwen3", StaticPrecision("16a8w"), {}),
    "gemma3": ("gemma3", StaticPrecision("16a8w"), {}),
    "mistral": ("mistral", StaticPrecision(head="int4"), {}),
    "phi3": ("phi3", StaticPrecision(), {}),
    "shards": ("gemma3", StaticPrecision(), {"options": QualcommOptions(shards=2, simulate_only=True)}),
}


def check_tokens(path: Path, family: str, precision: StaticPrecision, more: dict[str, Any]) -> None:
    model = RecordedModel(family)
    source = open_checkpoint(model.save(path.parent / family))
    windows = model.tokens[None, : CONTEXT - 1].astype(np.int64)
    compiled(source, path, windows, precision, **more)
    prompt = model.tokens[:19].tolist()
    assert greedy(path, prompt) == reference_tokens(source, precision, windows, prompt)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_twins_tokens_are_the_fake_quantized_models(case: str, tmp_path: Path) -> None:
    check_tokens(tmp_path / "m.pte", *CASES[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["llama", "an 8-bit cache", "gemma3", "qwen2"])
def test_the_emulators_tokens_are_the_fake_quantized_models(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHOICE, "emulator")
    family, precision, _ = CASES[case]
    check_tokens(tmp_path / "m.pte", family, precision, {"options": QualcommOptions(weight_sharing=False)})


@pytest.mark.slow
def test_the_file_of_a_device(tmp_path: Path) -> None:
    """One context of both methods, with weights once; graph names, inputs, outputs and metadata of ExecuTorch's."""
    model, sizes = RecordedModel("smollm2"), {}
    windows = model.tokens[None, : CONTEXT - 1].astype(np.int64)
    source = open_checkpoint(model.save(tmp_path / "folder"))
    for sharing in (False, True):
        path = tmp_path / f"{sharing}.pte"
        report = compiled(
            source, path, windows, StaticPrecision(kv_bits=8), options=QualcommOptions(weight_sharing=sharing)
        )
        program = read_program(path)
        methods = {plan.name: plan for plan in program.execution_plan}
        (blob,) = {bytes(program.blob(methods[n].delegates[0])) for n in ("prefill_forward", "kv_forward")}
        reader = BinaryReader(read_blob(blob).context)
        assert {graph.name for graph in reader.info.graphs} == {"prefill_forward", "kv_forward"}
        reader.close()
        sizes[sharing] = report.size
        assert report.target == "SM8650" and report.twin is not None and report.twin.exists()
        assert report.compiler.startswith("QNN 2.")
    assert sizes[True] < sizes[False]
    check_interface(path)
    prompt = model.tokens[:19].tolist()  # the emulator does not load shared weights: the twin runs
    assert greedy(path, prompt) == reference_tokens(source, StaticPrecision(kv_bits=8), windows, prompt)


def check_interface(path: Path) -> None:
    program = Runtime.get().load_program(path)
    for name, length in (("prefill_forward", PREFILL), ("kv_forward", 1)):
        found = program.metadata(name)
        held = CONTEXT - length
        shapes = [(1, length), (1, 1, length, CONTEXT), (1, length), *[(1, 2, 8, held)] * 3, *[(1, 2, held, 8)] * 3]
        assert [(tuple(i.shape), i.dtype) for i in found.inputs] == list(
            zip(shapes, ["int32", "uint16", "int32", *["uint8"] * 6], strict=True)
        )
        shapes = [(1, length, 61), *[(1, 2, 8, length)] * 3, *[(1, 2, length, 8)] * 3]
        assert [(tuple(i.shape), i.dtype) for i in found.outputs] == list(
            zip(shapes, ["uint16", *["uint8"] * 6], strict=True)
        )
        assert not any(i.planned for i in (*found.inputs, *found.outputs))  # memory is the caller's
    constants = {name: [o.value for o in program.metadata(name).outputs] for name in program.method_names[2:]}
    assert constants["get_ar_len"] == [1] and constants["get_kv_io_bit_width"] == [8]
    assert constants["get_n_layers"] == [3] and constants["get_max_context_len"] == [CONTEXT]
    assert constants["get_logits_scale"][0] > 0 and len(constants["get_kv_output_5_quant_attr"]) == 5
    assert constants["get_kv_output_0_quant_attr"][1:] == [128, 0, 255, "uint8"]
    assert "get_eos_id" not in constants  # the vocabulary of this model names none


@pytest.mark.slow
def test_shards_are_contexts_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "emulator")
    path, options = tmp_path / "m.pte", QualcommOptions(shards=3, weight_sharing=False)
    check_tokens(path, "llama", StaticPrecision(), {"options": options})
    program = read_program(path)
    delegates = [plan.delegates for plan in program.execution_plan[:2]]
    blobs = [[bytes(program.blob(d)) for d in each] for each in delegates]
    assert blobs[0] == blobs[1] and len(set(blobs[0])) == 3
    needed = max(spill_bytes(read_blob(blob).context) for blob in blobs[0])
    for delegate in (*delegates[0], *delegates[1]):
        htp = read_options(delegate.compile_specs[0].value).backend_options.htp_options
        assert htp.use_multi_contexts and htp.max_sf_buf_size == needed


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_checkpoint())
    return path


def test_a_program_that_talks(tiny_gguf: Path, tmp_path: Path) -> None:
    """With its tokenizer, calibrated on the text of ours: tokens are the fake-quantized model's."""
    path, text, vocabulary = tmp_path / "m.pte", tmp_path / "t.txt", Vocabulary(tiny_json(), eos_ids=(2,))
    text.write_text("hello the 123 on a tiny thing in there, all in all " * 4)
    report = compile_for_qualcomm(
        tiny_gguf, path, "SM8650", vocabulary=vocabulary, options=HOST, prefill_len=8, max_context_len=32,
        perplexity=text, perplexity_tokens=64,
    )  # fmt: skip
    assert report.target.startswith("SM8650 (simulation only") and report.twin is None
    assert report.calibrated_tokens > 500 and set(report.parts) == {"embedding", "linear layers", "head"}
    assert report.perplexity is not None and report.perplexity.program == STATIC
    assert report.perplexity.values[STATIC] < 1.2 * report.perplexity.values[ORIGINAL]
    model = llm.load(path)
    prompt = model.tokenizer.encode("hello the 123 in there")
    windows = calibration_windows(None, vocabulary, 32, long=True)
    tokens = reference_tokens(open_checkpoint(tiny_gguf), StaticPrecision(), windows, prompt, 32)
    for cached in (0, len(prompt) - 1):
        reply = model.generate(prompt, max_tokens=GENERATED, temperature=0, ignore_eos=True)
        assert reply.read() == model.tokenizer.decode(tokens) and len(set(tokens)) > 3
        assert reply.finish_reason == "length" and reply.statistics.cached_tokens == cached
    assert model.description.quantization == {"linear": "16a4w", "group_size": 32, "head": "int8", "kv_bits": 16}


REJECTED: dict[str, tuple[list[str], str]] = {
    "an unknown target": (["--target", "sm8560"], "got sm8560 Did you mean SM8550?"),
    "a target of another backend": (["--target", "ethos-u55-128"], "must be one of xnnpack, SM8350"),
    "an older Hexagon": (
        ["--target", "sm8450"],
        "must have a Hexagon of version 73 or later for language",
    ),
    "a precision of XNNPACK": (["--target", "sm8650", "--quantize", "8da4w"], "must be 16a4w or 16a8w for sm8650"),
    "a precision of Qualcomm": (["--quantize", "16a4w"], "must be 8da4w, int8, fp32 for xnnpack; got 16a4w"),
    "an embedding": (["--target", "sm8650", "--embedding", "int4"], "--embedding: is not for sm8650"),
    "a float head": (["--target", "sm8650", "--head", "fp32"], "must be int4, int8; got fp32"),
    "too many shards": (["--target", "sm8650", "--shards", "2"], "must be from 1 to 1, the number of layers; got 2"),
    "shards for XNNPACK": (["--shards", "2"], "--shards: is for Qualcomm's SoCs"),
    "a long context": (["--target", "sm8650", "--max-context-len", "129"], "must be from 1 to 128; got 129"),
    "a call of the context": (["--target", "sm8650", "--max-seq-len", "128"], "must be from 2 to 127"),
    "no tokenizer": (["--target", "sm8650"], "must have a tokenizer, to read a text"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str, cli: Cli, tiny_gguf: Path, tmp_path: Path) -> None:
    options, message = REJECTED[name]
    result = cli("llm", "compile", tiny_gguf, "-o", tmp_path / "m.pte", *options)
    assert result.code == 2 and message in " ".join(result.err.split()), result.err
    assert not list(tmp_path.glob("*.pte"))


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    source, path = tmp_path / "m.gguf", tmp_path / "m.pte"
    source.write_bytes(gguf_of(RecordedModel("smollm2")))
    options = ("--target", "sm8650", "--simulate-only", "--max-seq-len", 8, "--max-context-len", 32)
    result = cli("llm", "compile", source, "-o", path, *options, "--json")
    facts = json.loads(result.out)
    assert result.code == 0 and facts["shards"] == 1 and facts["twin"] is None and facts["max_seq_len"] == 8
    assert facts["parts"]["linear layers"]["precision"] == "int4 blocks of 32" and facts["compiler"] == ""
    shown = cli("llm", "compile", source, "-o", path, *options).out
    assert "prefill_forward and kv_forward in one context" in " ".join(shown.split())


@pytest.mark.slow
def test_bench_and_generate(cli: Cli, tmp_path: Path) -> None:
    source, path = tmp_path / "m.gguf", tmp_path / "m.pte"
    source.write_bytes(gguf_of(RecordedModel("smollm2")))
    options = ("--target", "sm8650", "--no-weight-sharing", "--max-seq-len", 8, "--max-context-len", 32)
    assert cli("llm", "compile", source, "-o", path, *options).code == 0
    bench = ("--prompt-tokens", 8, "--generate-tokens", 2, "--repetitions", 1, "--json")
    speeds = json.loads(cli("bench", path, *bench).out)
    assert [s["test"] for s in speeds] == ["pp8", "tg2"] and all(s["avg_ts"] > 0 for s in speeds)
    facts = json.loads(cli("generate", path, "a b", "--max-tokens", 3, "--raw", "--json").out)
    assert facts["generated_tokens"] <= 3


def test_socs() -> None:
    assert {"SM8550", "SM8650", "SM8750"} <= set(language_model_socs()) and "SM8450" not in language_model_socs()
    with pytest.raises(UsageError, match="soc_model: must be one of"):
        compile_for_qualcomm("m.gguf", "m.pte", "sm9999")
