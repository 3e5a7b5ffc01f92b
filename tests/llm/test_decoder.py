"""Compiled decoders against what transformers computed, in this runtime and in the stock one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.errors import ExecutionError
from edgewright.llm.compile import compile_checkpoint
from edgewright.llm.quantize_weights import quantize_groups, quantize_rows
from edgewright.llm.weights import Precision
from edgewright.runtime import Runtime
from tests.support.language_models import PROMPT, RecordedModel
from tests.support.stock import stock

FAMILIES = ("llama", "smollm2", "qwen2", "qwen2_yarn", "qwen3", "gemma3", "phi3", "mistral")
FLOAT = Precision("fp32", embedding="fp32", head="fp32")
MAX_SEQ = 16


def calls(model: RecordedModel) -> list[list[Any]]:
    """The recorded run: the prompt in two calls, the first as long as a call may be, then token by token."""
    tokens = model.tokens[None]
    starts = [0, MAX_SEQ, *range(PROMPT, tokens.shape[1] - 1)]
    ends = [*starts[1:], tokens.shape[1] - 1]
    return [[tokens[:, a:b], np.array([a])] for a, b in zip(starts, ends, strict=True)]


def compiled(model: RecordedModel, folder: Path, precision: Precision = FLOAT) -> bytes:
    path = folder / "model.pte"
    compile_checkpoint(model.save(folder / "checkpoint"), path, precision, max_seq_len=MAX_SEQ, max_context_len=96)
    return path.read_bytes()


def run(program: bytes, model: RecordedModel) -> np.ndarray:
    method = Runtime.get().load_program(program).load_method("forward")
    return np.concatenate([method.execute(call)[0] for call in calls(model)])[1:]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = RecordedModel(family)
    program = compiled(model, tmp_path)
    ours = run(program, model)
    theirs = np.concatenate([outputs[0] for outputs in stock().run_many(program, "forward", calls(model))])[1:]
    for logits in (ours, theirs):
        np.testing.assert_allclose(logits, model.logits, 1e-4, 2e-5 * np.abs(model.logits).max())
        assert logits.argmax(1).tolist() == model.tokens[PROMPT:].tolist()


def dequantized(weights: np.ndarray, precision: str) -> np.ndarray:
    made = quantize_rows(weights) if precision == "int8" else quantize_groups(weights, 32)
    return made.integers * np.repeat(made.scales, weights.shape[1] // made.scales.shape[1], 1)


@pytest.mark.parametrize("tables", ["int8", "int4"])
@pytest.mark.parametrize("linear", ["8da4w", "int8"])
def test_quantized_programs_compute_with_the_quantized_weights(linear: str, tables: str, tmp_path: Path) -> None:
    """The rest of the error comes from activations, which both runtimes round to int8, now and then differently."""
    model = RecordedModel("qwen2_yarn")
    program = compiled(model, tmp_path / "quantized", Precision(linear, 32, tables, tables))
    for name, weights in model.weights.items():
        if weights.ndim == 2:
            is_table = "embed" in name or "lm_head" in name
            model.weights[name] = dequantized(weights, tables if is_table else linear)
    expected = run(compiled(model, tmp_path / "float"), model)
    ours = run(program, model)
    theirs = np.concatenate([outputs[0] for outputs in stock().run_many(program, "forward", calls(model))])[1:]
    assert np.linalg.norm(ours - expected) < 0.05 * np.linalg.norm(expected)
    assert np.linalg.norm(ours - theirs) < 0.02 * np.linalg.norm(theirs)


@pytest.mark.parametrize("family", ["smollm2", "gemma3", "qwen3"])
def test_int8_caches_are_those_of_the_stock_runtime(family: str, tmp_path: Path) -> None:
    """Rows in the cache are the same bits in both runtimes, up to rounding where they are computed."""
    model = RecordedModel(family)
    program = compiled(model, tmp_path, Precision("fp32", embedding="fp32", head="fp32", kv_cache="int8"))
    ours = run(program, model)
    theirs = np.concatenate([outputs[0] for outputs in stock().run_many(program, "forward", calls(model))])[1:]
    assert np.linalg.norm(ours - theirs) < 2e-3 * np.linalg.norm(theirs)
    assert ours.argmax(1).tolist() == theirs.argmax(1).tolist()
    assert 0 < np.linalg.norm(ours - model.logits) < 0.03 * np.linalg.norm(model.logits)


def test_a_call_may_have_any_length_up_to_the_declared_one(tmp_path: Path) -> None:
    model = RecordedModel("llama")
    method = Runtime.get().load_program(compiled(model, tmp_path)).load_method("forward")
    tokens = model.tokens[None]
    for lengths in ([1] * PROMPT, [7, 13], [16, 4]):
        at = 0
        for length in lengths:
            logits = method.execute([tokens[:, at : at + length], np.array([at])])[0]
            at += length
        np.testing.assert_allclose(logits[0], model.logits[0], 1e-4, 1e-4)


def test_methods_that_runners_read(tmp_path: Path) -> None:
    program = compiled(RecordedModel("qwen2"), tmp_path)
    expected = {"get_max_seq_len": 16, "get_max_context_len": 96, "use_kv_cache": True, "enable_dynamic_shape": True,
                "use_sdpa_with_kv_cache": True, "get_vocab_size": 61, "get_n_layers": 3}  # fmt: skip
    loaded = Runtime.get().load_program(program)
    for name, value in expected.items():
        assert stock().run(program, name, []) == list(loaded.load_method(name).execute([])) == [value], name


def test_programs_are_the_same_every_time(tmp_path: Path) -> None:
    model = RecordedModel("gemma3")
    assert compiled(model, tmp_path / "a") == compiled(model, tmp_path / "b")


@pytest.mark.parametrize("kv_cache", ["fp32", "int8"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_one_graph_serves_every_position(family: str, kv_cache: str, tmp_path: Path) -> None:
    model = RecordedModel(family)
    precision = Precision("fp32", embedding="fp32", head="fp32", kv_cache=kv_cache)
    method = Runtime.get().load_program(compiled(model, tmp_path, precision)).load_method("forward")
    for call in calls(model)[:6]:
        method.execute(call)
    assert method._specializer is not None
    variants = method._specializer._by_shapes
    assert [shapes[0] for shapes in variants] == [(1, MAX_SEQ), (1, PROMPT - MAX_SEQ), (1, 1)]
    for chains in variants.values():
        assert [step.label for step in chains[0][:2]] == ["aten::select_copy.int_out", "aten::_local_scalar_dense"]
        assert 2 + chains[0][2].length == len(chains[0])
        assert all(step.python is None for step in chains[0][2].compiled.plan.steps)


def test_positions_outside_of_the_context_are_rejected(tmp_path: Path) -> None:
    model = RecordedModel("llama")
    method = Runtime.get().load_program(compiled(model, tmp_path)).load_method("forward")
    token = model.tokens[None, :1]
    method.execute([token, np.array([95])])
    for position in (96, -1, 1 << 40):
        with pytest.raises(ExecutionError):
            method.execute([token, np.array([position])])
