"""Perplexity in the report of ``llm compile``, against the logits of the program that it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgewright.errors import UsageError
from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.compile import LlmReport, compile_checkpoint
from edgewright.llm.text_windows import read_tokens, windows_of
from edgewright.llm.vocabulary import Vocabulary, read_vocabulary
from edgewright.llm.weights import Precision
from edgewright.runtime import Runtime
from tests.cli.cli import Cli
from tests.support.language_models import RecordedModel, gguf_of
from tests.support.stock import stock

CONTEXT = 32


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_of(RecordedModel("smollm2")))
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    letters = np.random.default_rng(0).choice(list("abcdefgh ABC019"), 700)
    path = tmp_path / "text.txt"
    path.write_text("".join(letters))
    return path


def compiled(checkpoint: Path, **options: object) -> LlmReport:
    options = {"max_seq_len": CONTEXT, "max_context_len": CONTEXT, **options}
    return compile_checkpoint(checkpoint, checkpoint.with_suffix(".pte"), **options)  # type: ignore[arg-type]


def perplexity_of_program(path: Path, windows: np.ndarray) -> float:
    """By running the program token by token."""
    method = Runtime.get().load_program(path).load_method("forward")
    total = 0.0
    for window in windows:
        for at, following in enumerate(window[1:]):
            logits = method.execute([window[None, at : at + 1], np.array([at])])[0][0].astype(np.float64)
            total += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[following]
    return float(np.exp(total / windows[:, 1:].size))


PRECISIONS = {
    "searched": Precision("8da4w"), "nearest": Precision("int8"), "float": Precision("fp32", 32, "fp32", "fp32"),
    "calibrated": Precision("8da4w", head="int4", embedding="int4"),
}  # fmt: skip


@pytest.mark.parametrize("rounding", PRECISIONS)
def test_it_is_that_of_the_program(rounding: str, checkpoint: Path, text: Path) -> None:
    calibrate = text if rounding == "calibrated" else False
    report = compiled(
        checkpoint, precision=PRECISIONS[rounding], perplexity=text, perplexity_tokens=100, calibrate=calibrate
    )
    measured = report.perplexity
    assert measured is not None and measured.program == rounding and measured.tokens == 3 * (CONTEXT - 1)
    windows = windows_of(*read_tokens(text, read_vocabulary(open_checkpoint(checkpoint))), CONTEXT, 100)
    expected = perplexity_of_program(checkpoint.with_suffix(".pte"), windows)
    assert measured.values[rounding] == pytest.approx(expected, rel=1e-5 if rounding == "float" else 0.01)
    names = {
        "calibrated": ["original", "nearest", "searched", "calibrated"],
        "searched": ["original", "nearest", "searched"],
    }
    assert list(measured.values) == names.get(rounding, ["original", rounding])
    if rounding == "float":
        assert measured.values["float"] == pytest.approx(measured.values["original"], rel=1e-6)
    else:
        assert len(set(measured.values.values())) == len(measured.values)


def test_calibration_changes_integers_only(checkpoint: Path, text: Path) -> None:
    sizes = {}
    layers: list[int] = []
    for name, calibrate in (("searched", False), ("calibrated", text)):
        report = compiled(checkpoint, calibrate=calibrate, on_layer=lambda: layers.append(1))
        sizes[name] = report.size
        assert report.calibrated_tokens == (700 // CONTEXT * CONTEXT if calibrate else 0)
    assert sizes["searched"] == sizes["calibrated"]
    assert len(layers) == 2 * 3


def test_windows() -> None:
    tokens = list(range(10, 33))
    np.testing.assert_array_equal(windows_of([], tokens, 4, 9), [[10, 11, 12, 13], [14, 15, 16, 17]])
    np.testing.assert_array_equal(windows_of([1], tokens, 4, 6), [[1, 10, 11, 12], [1, 13, 14, 15]])
    np.testing.assert_array_equal(windows_of([], tokens, 4, 8, spread=True), [[10, 11, 12, 13], [26, 27, 28, 29]])
    np.testing.assert_array_equal(windows_of([1], [5], 512, 512), [[1, 5]])  # a short text is one window
    np.testing.assert_array_equal(windows_of([], tokens, 4, 1), [[10, 11, 12, 13]])
    for start, few in (([], [5]), ([1], []), ([], [])):
        with pytest.raises(UsageError, match="at least two tokens"):
            windows_of(start, few, 512, 512)


def test_texts_that_cannot_be_used(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    short, binary = tmp_path / "short.txt", tmp_path / "binary.txt"
    short.write_text("abc" * 20)
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="at least 256 tokens to calibrate"):
        compiled(checkpoint, calibrate=short)
    with pytest.raises(UsageError, match="must be UTF-8"):
        compiled(checkpoint, perplexity=binary)
    with pytest.raises(UsageError, match=r"4-bit linear layers \(8da4w\); got int8"):
        compiled(checkpoint, calibrate=text, precision=Precision("int8"))
    with pytest.raises(UsageError, match="must be 2 or more"):
        compiled(checkpoint, perplexity=text, perplexity_tokens=1)
    with pytest.raises(UsageError, match="must have a tokenizer"):
        compiled(checkpoint, perplexity=text, vocabulary=Vocabulary())


def test_the_command_shows_each_rounding(cli: Cli, checkpoint: Path, text: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    options = ["--calibrate", text, "--perplexity", text, "--perplexity-tokens", 256]
    facts = json.loads(cli("llm", "compile", checkpoint, "-o", path, *options, "--json").out)
    assert facts["calibrated_tokens"] >= 256 and facts["perplexity"]["program"] == "calibrated"
    values = facts["perplexity"]["values"]
    assert list(values) == ["original", "nearest", "searched", "calibrated"]
    shown = cli("llm", "compile", checkpoint, "-o", path, *options).out
    for line in ("the checkpoint's own values", "rounded to nearest", "scales searched", "GPTQ), in the file"):
        assert line in shown
    assert f"{values['calibrated']:.2f}" in shown
    assert cli("llm", "compile", checkpoint, "-o", path, "--perplexity", tmp_path / "none.txt").code == 3


def test_q4_0_and_q8_0_are_carried_over(cli: Cli, tmp_path: Path) -> None:
    model = RecordedModel("qwen2_yarn")  # has a head of its own
    for kind, options in (("Q4_0", []), ("Q8_0", ["--quantize", "int8"])):
        path = tmp_path / f"{kind}.gguf"
        path.write_bytes(gguf_of(model, kind))
        facts = json.loads(cli("llm", "compile", path, "-o", tmp_path / "m.pte", *options, "--json").out)
        linear, table = (facts["parts"][name] for name in ("linear layers", "embedding"))
        if kind == "Q4_0":  # its largest weight is -8 or +8 times the scale, which is half the time no int4
            assert 0.4 < linear["carried_groups"] / linear["groups"] < 0.6
        else:
            assert table["precision"] == "int8" and table["relative_error"] == 0  # rows of one group
            assert table["carried_groups"] == table["groups"] and 0 < linear["relative_error"] < 0.01
    shown = cli("llm", "compile", tmp_path / "Q4_0.gguf", "-o", tmp_path / "m.pte").out
    assert "of groups keep the checkpoint's integers; the others need +8" in shown


def test_the_embedding_of_q8_0_is_exact_in_groups(tmp_path: Path) -> None:
    """In a model of two groups a row: the rows that the program reads are the checkpoint's, here and in stock."""
    draw = np.random.default_rng(0)
    shapes = {
        "model.embed_tokens": (40, 64), "lm_head": (40, 64), "model.norm": (64,),
        **{f"model.layers.0.{n}": s for n, s in {
            "input_layernorm": (64,), "post_attention_layernorm": (64,), "self_attn.q_proj": (64, 64),
            "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
            "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96)}.items()},
    }  # fmt: skip
    model = RecordedModel("llama")
    model.weights = {f"{n}.weight": draw.standard_normal(s).astype(np.float32) / 4 for n, s in shapes.items()}
    model.config |= {"vocab_size": 40, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
                     "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_of(model, "Q8_0"))
    report = compile_checkpoint(
        path, tmp_path / "m.pte", Precision("fp32", 32, "int8", "fp32"), vocabulary=Vocabulary()
    )
    table = report.parts["embedding"]
    assert table.precision == "int8 groups of 32" and table.relative_error == 0 and table.carried_groups == 80
    exact = compile_checkpoint(path, tmp_path / "e.pte", Precision("fp32", 32, "fp32", "fp32"), vocabulary=Vocabulary())
    call = [np.array([[3, 39, 0, 17]]), np.array([0])]
    results = [
        run for file in (report.path, exact.path)
        for run in (stock().run(file.read_bytes(), "forward", call)[0],
                    Runtime.get().load_program(file).load_method("forward").execute(call)[0])
    ]  # fmt: skip
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], 1e-4, 1e-4)
