"""Compiling checkpoints: what the file contains, what runners make of it, the command line and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright import llm
from edgewright.errors import FormatError, UsageError
from edgewright.formats.pte_reader import read_program
from edgewright.formats.pte_writer import write_program
from edgewright.llm.calibrate import OWN_TOKENS
from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.compile import compile_checkpoint
from edgewright.llm.description import read_description, read_tokenizer
from edgewright.llm.vocabulary import Vocabulary, read_vocabulary
from edgewright.llm.weights import Precision
from edgewright.runtime import Runtime
from tests.cli.cli import Cli
from tests.llm.runner_process import run_stock_runner
from tests.support.language_models import RecordedModel, gguf_of
from tests.support.stock import stock

FLOAT = Precision("fp32", embedding="fp32", head="fp32")


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_of(RecordedModel("smollm2")))
    return path


def logits_of(program: bytes, tokens: np.ndarray) -> np.ndarray:
    method = Runtime.get().load_program(program).load_method("forward")
    return np.asarray(method.execute([tokens, np.array([0])])[0])


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_logits_of_a_gguf_file(kind: str, tmp_path: Path) -> None:
    """They are those of the weights that the file holds."""
    model, path = RecordedModel("smollm2"), tmp_path / "model.gguf"
    path.write_bytes(gguf_of(model, kind))
    compile_checkpoint(path, tmp_path / "gguf.pte", FLOAT)
    held = open_checkpoint(path)
    names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
             "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip
    for layer in range(3):
        for ours, theirs in names.items():
            model.weights[f"model.layers.{layer}.{theirs}.weight"] = held.load(f"layers.{layer}.{ours}")
    model.weights["model.embed_tokens.weight"] = held.load("embedding")
    compile_checkpoint(model.save(tmp_path / "folder"), tmp_path / "folder.pte", FLOAT)
    tokens = model.tokens[None, :20]
    results = [logits_of((tmp_path / name).read_bytes(), tokens) for name in ("gguf.pte", "folder.pte")]
    np.testing.assert_array_equal(*results)
    if kind == "F32":
        np.testing.assert_allclose(results[0][0], model.logits[0], 1e-4, 1e-4)


def test_the_stock_runner_says_what_ours_says(gguf_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    report = compile_checkpoint(gguf_file, path, max_seq_len=16, max_context_len=64, calibrate=False)
    assert report.tokenizer == tmp_path / "model.tokenizer.json"
    prompt = "abcab dc0 abcdefghijklmnopab"  # longer than a call
    ours = llm.load(path).generate(prompt, max_tokens=24, temperature=0.0).read()
    theirs = run_stock_runner(path, report.tokenizer, prompt, 24)
    end = theirs.find("<|im_end|>")
    assert ours and ours == (theirs if end < 0 else theirs[:end])


def test_what_a_program_says_about_text(gguf_file: Path, tmp_path: Path) -> None:
    compile_checkpoint(gguf_file, tmp_path / "model.pte", calibrate=False)
    program = read_program(tmp_path / "model.pte")
    description = read_description(program)
    assert description is not None and description.family == "llama"
    expected = {"linear": "8da4w", "group_size": 32, "embedding": "int8", "head": "int8", "kv_cache": "int8"}
    assert description.quantization == expected
    assert description.special_tokens["eos_token"] == "<|im_end|>" and "messages" in str(description.chat_template)
    assert description.config["layers"] == 3
    assert read_tokenizer(program) == (tmp_path / "model.tokenizer.json").read_bytes()
    data = (tmp_path / "model.pte").read_bytes()
    assert stock().run(data, "get_eos_ids", []) == [2] and stock().run(data, "get_bos_id", []) == [1]


def test_a_tied_head_is_stored_once(tmp_path: Path) -> None:
    model = RecordedModel("smollm2")
    model.config["vocab_size"] = 2100  # large enough to be shared
    rows = np.random.default_rng(0).standard_normal((2100, 32)).astype(np.float32)
    model.weights["model.embed_tokens.weight"] = rows
    path = tmp_path / "model.pte"
    report = compile_checkpoint(model.save(tmp_path / "folder"), path)
    program = read_program(path)
    shared = [segment for segment in program.segments or () if segment.outer is not None]
    assert [segment.size for segment in shared] == [rows.size] and report.parts["head"].bytes == 0
    again = write_program(program)  # a program that was read keeps them together
    assert abs(len(again) - report.size) < 256 and len(again) < report.size + rows.size // 2
    calls: list[list[Any]] = [[model.tokens[None, :20], np.array([0])]]
    for data in (path.read_bytes(), again):
        theirs = stock().run_many(data, "forward", calls)[0][0]
        np.testing.assert_allclose(logits_of(data, model.tokens[None, :20]), theirs, 0.02, 0.02 * np.abs(theirs).max())


def test_vocabulary_of_a_folder(tmp_path: Path) -> None:
    model = RecordedModel("qwen3")
    folder = model.save(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5], "temperature": 0.7, "x": 1}))
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "old"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    words = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    added = [{"id": 60, "content": "</s>", "special": True}, {"id": 61, "content": "<image>", "special": True}]
    for token in added:
        token |= {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added, "model": words}))
    vocabulary = read_vocabulary(open_checkpoint(folder))
    assert vocabulary.eos_ids == (2, 5) and vocabulary.generation == {"eos_token_id": [2, 5], "temperature": 0.7}
    assert vocabulary.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert vocabulary.chat_template == "old"
    assert vocabulary.tokenizer is not None
    assert [t["id"] for t in json.loads(vocabulary.tokenizer)["added_tokens"]] == [60]  # the model has no row 61
    (folder / "chat_template.jinja").write_text("new")
    assert read_vocabulary(open_checkpoint(folder)).chat_template == "new"
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 61}))
    with pytest.raises(UsageError, match="id of the model, 0 to 60; got 61"):
        read_vocabulary(open_checkpoint(folder))


FILES: dict[str, tuple[str, str, str]] = {
    "a template": ("tokenizer_config.json", '{"chat_template": "\\ud800"}', "chat template: must be text in UTF-8"),
    "a token": ("tokenizer_config.json", '{"eos_token": "\\udfff"}', "eos_token: must be text in UTF-8"),
    "defaults": ("generation_config.json", '{"pad_token_id": ["\\ud800"]}', "defaults: must be text in UTF-8"),
    "a temperature": ("generation_config.json", '{"temperature": "hot"}', "defaults.temperature: must be a number"),
    "no number": ("generation_config.json", '{"top_p": NaN}', "defaults.top_p: must be from 0 to 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_texts_and_defaults_that_no_program_can_have(name: str, tmp_path: Path) -> None:
    folder, (file, content, message) = RecordedModel("qwen3").save(tmp_path), FILES[name]
    (folder / file).write_text(content)
    with pytest.raises(FormatError, match=message):
        compile_checkpoint(folder, tmp_path / "m.pte")


def test_a_template_of_a_gguf_file_is_utf_8(tmp_path: Path) -> None:
    data = gguf_of(RecordedModel("smollm2"))
    (tmp_path / "m.gguf").write_bytes(data.replace(b"{% for", b"\xff% for", 1))
    with pytest.raises(FormatError, match="chat template: must be text in UTF-8"):
        compile_checkpoint(tmp_path / "m.gguf", tmp_path / "m.pte")


def test_compiling_imports_no_torch(gguf_file: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from edgewright.llm.compile import compile_checkpoint; "
        f"compile_checkpoint({str(gguf_file)!r}, {str(tmp_path / 'm.pte')!r}); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------------------------------------- the command line


def test_the_command(cli: Cli, gguf_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    result = cli("llm", "compile", gguf_file, "-o", path, "--max-seq-len", 8, "--max-context-len", 32, "--json",
                 "--quantize", "8da4w")  # fmt: skip
    assert result.code == 0
    facts = json.loads(result.out)
    assert facts["bytes"] == path.stat().st_size and facts["family"] == "llama"
    assert (facts["max_seq_len"], facts["max_context_len"], facts["chat_template"]) == (8, 32, True)
    assert facts["parts"]["linear layers"]["precision"] == "int4 groups of 32"
    assert 0.05 < facts["parts"]["linear layers"]["relative_error"] < 0.12
    shown = cli("llm", "compile", gguf_file, "-o", path, "--quantize", "int8", "--head", "fp32").out
    assert "linear layers" in shown and "int8" in shown and "fp32" in shown and "tokenizer.json" in shown
    assert "4 bits cost" not in shown
    shown = cli("llm", "compile", gguf_file, "-o", path, "--quantize", "8da4w", "--no-calibrate").out
    assert "4 bits cost a small model much quality" in shown and "--calibrate" in shown
    shown = cli("llm", "compile", gguf_file, "-o", path, "--quantize", "8da4w").out
    assert "calibrated on 4096 tokens" in shown and "4 bits cost" not in shown


def test_small_models_have_8_bits_unless_4_are_asked_for(cli: Cli, gguf_file: Path, tmp_path: Path) -> None:
    def precision(*options: Any) -> str:
        facts = json.loads(cli("llm", "compile", gguf_file, "-o", tmp_path / "m.pte", *options, "--json").out)
        found: str = facts["parts"]["linear layers"]["precision"]
        return found

    assert precision() == "int8"
    assert precision("--group-size", 32) == precision("--quantize", "8da4w") == "int4 groups of 32"


def test_small_models_in_4_bits_are_calibrated(gguf_file: Path, tmp_path: Path) -> None:
    """On our text, unless they are not to be, or nothing can read it."""
    path = tmp_path / "m.pte"
    assert compile_checkpoint(gguf_file, path).calibrated_tokens == OWN_TOKENS
    assert compile_checkpoint(gguf_file, path, calibrate=False).calibrated_tokens == 0
    assert compile_checkpoint(gguf_file, path, vocabulary=Vocabulary()).calibrated_tokens == 0
    assert compile_checkpoint(gguf_file, path, Precision("int8")).calibrated_tokens == 0
    assert compile_checkpoint(gguf_file, path, max_context_len=40, calibrate=True).calibrated_tokens == 102 * 40
    with pytest.raises(UsageError, match="must have a tokenizer"):
        compile_checkpoint(gguf_file, path, vocabulary=Vocabulary(), calibrate=True)


def test_large_models_are_not_calibrated_by_default(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgewright.llm.compile.SMALL", 1000)
    assert compile_checkpoint(gguf_file, tmp_path / "m.pte").calibrated_tokens == 0
    assert compile_checkpoint(gguf_file, tmp_path / "m.pte", calibrate=True).calibrated_tokens == OWN_TOKENS


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_models_without_finite_results_cannot_be_calibrated(tmp_path: Path) -> None:
    model = RecordedModel("smollm2")
    model.weights["model.layers.1.post_attention_layernorm.weight"][0] = np.inf
    (tmp_path / "model.gguf").write_bytes(gguf_of(model))
    with pytest.raises(UsageError, match=r"inputs of layers.1.gate: must be finite on the calibration text"):
        compile_checkpoint(tmp_path / "model.gguf", tmp_path / "m.pte")


REJECTED: dict[str, tuple[list[Any], int, str]] = {
    "another file name": (["-o", "m.bin"], 2, "must end in .pte"),
    "a group size": (["-o", "m.pte", "--group-size", "64"], 2, "multiples of the group size 64; got 32"),
    "a context beyond the model's": (["-o", "m.pte", "--max-context-len", "129"], 2, "must be from 1 to 128; got 129"),
    "a call beyond the context": (["-o", "m.pte", "--max-seq-len", "129"], 2, "max_seq_len: must be from 1 to 128"),
    "a text and none": (["-o", "m.pte", "--no-calibrate", "--calibrate", "t"], 2, "contradicts --calibrate; got t"),
    "no tokens": (["-o", "m.pte", "--max-seq-len", "0"], 2, "must be from 1"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str, cli: Cli, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options, code, message = REJECTED[name]
    result = cli("llm", "compile", gguf_file, *options)
    assert result.code == code and message in result.err
    assert not list(tmp_path.glob("*.pte"))


def test_files_that_are_no_checkpoints(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(10))
    (tmp_path / "text.gguf").write_text("hello")
    for name, code in (("m.gguf", 4), ("text.gguf", 4), ("missing.gguf", 3)):
        assert cli("llm", "compile", tmp_path / name, "-o", tmp_path / "m.pte").code == code
    (tmp_path / "config.json").write_text("{}")
    result = cli("llm", "compile", tmp_path, "-o", tmp_path / "m.pte")
    assert result.code == 2 and "not a supported family" in result.err
