"""``edgewright.llm.load``: files, what they say, and that their key-value cache changes nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgewright as ew
from edgewright.errors import FormatError, InputError, MissingDataError, UsageError
from edgewright.formats.pte_reader import read_program
from edgewright.llm.decoder_method import DecoderMethod, constants
from edgewright.llm.description import KEY, TOKENIZER_KEY, read_description
from edgewright.runtime import Runtime
from tests.cli.cli import GOLDEN
from tests.llm.fakes import TEMPLATE
from tests.llm.tiny import tiny_json
from tests.llm.tiny_model import CHUNK, CONTEXT, GENERATION, replace_named_data

PROMPT = "hello the inner circle of a longer prompt, which needs several chunks"


def greedy_tokens(lm: ew.llm.LanguageModel, prompt: list[int], count: int) -> list[int]:
    """Everything is computed again for each token."""
    tokens = list(prompt)
    for _ in range(count):
        lm.reset()
        reply = lm.generate(tokens, max_tokens=1, temperature=0, ignore_eos=True)
        reply.read()
        tokens += reply.tokens
        assert reply.statistics.cached_tokens == 0
    return tokens[len(prompt) :]


def test_the_cache_of_a_real_model_changes_nothing(tiny_pte: Path) -> None:
    lm, fresh = ew.llm.load(tiny_pte), ew.llm.load(tiny_pte)
    reply = lm.generate(PROMPT, max_tokens=12, temperature=0, ignore_eos=True)
    reply.read()
    assert reply.tokens == greedy_tokens(fresh, lm.tokenizer.encode(PROMPT), 12)
    assert len(set(reply.tokens)) > 3
    longer = [*lm.tokenizer.encode(PROMPT), *reply.tokens[:8], 50, 51, 52]
    again = lm.generate(longer, max_tokens=6, temperature=0, ignore_eos=True)
    again.read()
    assert again.tokens == greedy_tokens(fresh, longer, 6)
    assert again.statistics.cached_tokens == len(longer) - 3


def test_what_the_file_says(tiny_pte: Path) -> None:
    lm = ew.llm.load(tiny_pte)
    assert (lm.name, lm.context_length, lm.ends) == ("tiny", CONTEXT, {0, 2})
    assert (lm.defaults.temperature, lm.defaults.top_k, lm.defaults.top_p) == (0.5, 7, 0.95)
    assert lm.description.family == "llama" and lm.description.generation == GENERATION
    assert lm.template is not None and lm.template.source == TEMPLATE
    assert lm.chat([{"role": "user", "content": "Hi"}], max_tokens=3, seed=1).read() is not None


def test_a_tokenizer_in_the_file_beside_it_or_passed(tmp_path: Path, tiny_pte: Path) -> None:
    bare = Path(shutil.copy(tiny_pte, tmp_path / "bare.pte"))
    replace_named_data(bare, **{TOKENIZER_KEY: None, KEY: None})
    with pytest.raises(MissingDataError, match=r"bare\.pte: has no tokenizer in it or next to it"):
        ew.llm.load(bare)
    passed = ew.llm.load(bare, tokenizer=tiny_json())
    (tmp_path / "bare.tokenizer.json").write_bytes(tiny_json())
    beside = ew.llm.load(bare)
    assert passed.tokenizer.encode("hello") == beside.tokenizer.encode("hello")
    assert passed.template is None and passed.defaults == ew.llm.SamplingOptions()
    template = ew.llm.load(bare, chat_template=TEMPLATE).template
    assert template is not None and template.source == TEMPLATE


def described(tiny_pte: Path, path: Path, **change: Any) -> Path:
    """The model with another description."""
    shutil.copy(tiny_pte, path)
    content = json.loads(read_description(read_program(path.read_bytes())).to_json())  # type: ignore[union-attr]
    replace_named_data(path, **{KEY: json.dumps({**content, **change}).encode()})
    return path


def test_do_sample_false_is_greedy(tiny_pte: Path, tmp_path: Path) -> None:
    path = described(tiny_pte, tmp_path / "m.pte", generation={"do_sample": False, "temperature": 0.7})
    assert ew.llm.load(path).defaults.temperature == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"generation": {"temperature": -1}}, r"edgewright\.llm\.generation\.temperature: must be from 0"),
        ({"generation": {"top_k": "many"}}, r"generation\.top_k: must be a whole number"),
        ({"chat_template": "{% if %}"}, "chat template: cannot be compiled"),
        ({"config": 3}, r"edgewright\.llm\.config: must be a JSON object"),
    ],
)
def test_hostile_descriptions(change: dict[str, Any], message: str, tiny_pte: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        ew.llm.load(described(tiny_pte, tmp_path / "m.pte", **change))


def test_a_hostile_tokenizer(tiny_pte: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(tiny_pte, tmp_path / "m.pte"))
    replace_named_data(path, **{TOKENIZER_KEY: b"{}"})
    with pytest.raises(FormatError, match="tokenizer in the file: cannot be loaded"):
        ew.llm.load(path)


def test_a_tokenizer_larger_than_the_model(tiny_pte: Path) -> None:
    content = json.loads(tiny_json())
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    size = len(content["model"]["vocab"])
    content["added_tokens"].append({"id": size, "content": "<more>", **plain})
    lm = ew.llm.load(tiny_pte, tokenizer=json.dumps(content).encode())
    with pytest.raises(InputError, match=f"0 to {size - 1}; got {size}"):
        lm.generate("a<more>").read()


def test_programs_that_are_no_language_models(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must take tokens, int64"):
        ew.llm.load(GOLDEN / "linear_fp32_portable.pte", tokenizer=tiny_json())


def test_constants(tiny_pte: Path) -> None:
    program = Runtime.get().load_program(tiny_pte)
    assert constants(program, "get_eos_ids") == [2, 0]
    assert constants(program, "use_kv_cache") == [True]
    assert constants(program, "get_nothing") == []
    with pytest.raises(FormatError, match="method 'forward'"):
        constants(program, "forward")


def test_the_decoder(tiny_pte: Path) -> None:
    decoder = DecoderMethod(Runtime.get().load_program(tiny_pte))
    assert (decoder.context_length, decoder.chunk_length, decoder.rewindable) == (CONTEXT, CHUNK, True)
    logits = decoder.forward([5, 6, 7], 0)
    assert logits.shape == (decoder.vocabulary,) and logits.dtype == np.float32
    decoder.forward([9], 0)
    decoder.reset()
    np.testing.assert_array_equal(decoder.forward([5, 6, 7], 0), logits)


def test_nothing_imports_torch(tiny_pte: Path) -> None:
    code = (
        "import sys, edgewright as ew\n"
        "import edgewright.llm.server, edgewright.cli.chat, edgewright.cli.generate, edgewright.cli.serve\n"
        f"lm = ew.llm.load({str(tiny_pte)!r})\n"
        "assert lm.chat([{'role': 'user', 'content': 'Hi'}], max_tokens=2, seed=0).read() is not None\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
