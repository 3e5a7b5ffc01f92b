"""``edgewright bench`` of language models: tokens per second, beside llama.cpp where its library is."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

import pytest

from edgewright.errors import MissingError, VendorError
from edgewright.peers import llama_cpp
from tests.cli.cli import Cli
from tests.llm.tiny_model import CONTEXT
from tests.support.language_models import RecordedModel, gguf_of

LIBRARY = os.environ.get(llama_cpp.LIBRARY)


def test_speeds_of_a_model(cli: Cli, tiny_pte: Path) -> None:
    result = cli("bench", tiny_pte, "--repetitions", 3, "--generate-tokens", 8, "--json")
    assert result.code == 0
    speeds = json.loads(result.out)
    assert [s["test"] for s in speeds] == [f"pp{CONTEXT}", "tg8"]  # the default prompt is as long as the context
    for speed in speeds:
        assert speed["runtime"] == "Edgewright" and len(speed["samples"]) == 3 and speed["bytes"] > 0
        assert speed["avg_ts"] == pytest.approx(sum(speed["samples"]) / 3) and speed["stddev_ts"] >= 0
    shown = cli("bench", tiny_pte, "--repetitions", 1, "--prompt-tokens", 16, "--generate-tokens", 0, "--depth", 5).out
    assert "pp16 @ d5" in shown and "tg" not in shown and "tokens/s" in shown and "±" in shown


REJECTED = {
    "too many tokens": (["--prompt-tokens", CONTEXT + 1], 2, f"the context has {CONTEXT} tokens"),
    "too deep": (["--depth", CONTEXT], 2, f"must be from 0 to {CONTEXT - 1}"),
    "nothing to measure": (["--prompt-tokens", 0, "--generate-tokens", 0], 2, "needs a prompt or tokens"),
    "no repetitions": (["--repetitions", 0], 2, "must be from 1 to 1000"),
    "another peer": (["--peer", "m.onnx"], 2, "takes .gguf (llama.cpp)"),
    "the stock runtime": (["--peers"], 2, "does not measure language models"),
    "no peer file": (["--peer", "missing.gguf", "--llama-cpp", "LIBRARY"], 2, "--peer: must be a file"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str, cli: Cli, tiny_pte: Path, tmp_path: Path) -> None:
    library = tmp_path / "libllama.so"
    library.write_bytes(b"")
    options, code, message = REJECTED[name]
    result = cli("bench", tiny_pte, *(library if o == "LIBRARY" else o for o in options))
    assert result.code == code and message in result.err


def test_finding_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(llama_cpp.LIBRARY, raising=False)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(MissingError, match=f"llama.cpp: is not installed\n.*{llama_cpp.LIBRARY}=PATH"):
        llama_cpp.find_library()
    with pytest.raises(MissingError, match="folder has no libllama"):
        llama_cpp.find_library(str(tmp_path))
    with pytest.raises(MissingError, match="does not exist"):
        llama_cpp.find_library(str(tmp_path / "libllama.so"))
    library = tmp_path / "libllama.v0.5.0.so"
    library.write_bytes(b"")
    monkeypatch.setenv(llama_cpp.LIBRARY, str(tmp_path))
    assert llama_cpp.find_library() == str(library)
    assert llama_cpp.find_library(str(library)) == str(library)


def test_a_peer_without_a_library_is_an_error(cli: Cli, tiny_pte: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    result = cli("bench", tiny_pte, "--peer", model, "--llama-cpp", tmp_path / "nowhere")
    assert result.code == 6 and "does not exist" in result.err and "@node-llama-cpp" in result.err
    (tmp_path / "libllama.so").write_bytes(b"no library")
    result = cli("bench", tiny_pte, "--peer", model, "--llama-cpp", tmp_path)
    assert result.code and "llama.cpp on" in result.err and "libllama.so" in result.err


def test_the_process_of_the_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol, with a server that answers at once; one that dies says why."""
    server, model = tmp_path / "serve.py", tmp_path / "m.gguf"
    model.write_bytes(b"")
    server.write_text(
        textwrap.dedent("""
        import json, sys
        print(json.dumps({"features": sys.argv[3]}), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            if request == {"generate": 9, "depth": 0}:
                sys.exit("out of memory")
            print(json.dumps({"seconds": request.get("prompt"), "negative_log_likelihood": 5.0}), flush=True)
        """)
    )
    monkeypatch.setattr(llama_cpp, "SERVE", server)
    with llama_cpp.LlamaCpp("lib", str(model), 3, 64) as peer:
        assert peer.info == {"features": "3"} and peer.prompt(7, 2) == 7 and peer.score([1, 2]) == 5
        with pytest.raises(VendorError, match="failed; got out of memory"):
            peer.generate(9)


@pytest.mark.skipif(not LIBRARY, reason=f"{llama_cpp.LIBRARY} does not name llama.cpp's library")
def test_beside_llama_cpp(cli: Cli, tmp_path: Path) -> None:
    """The file of one model in both, and the likelihood that both give a text."""
    import numpy as np

    from edgewright.llm.compile import compile_checkpoint
    from edgewright.llm.weights import Precision
    from tests.llm.test_perplexity import perplexity_of_program

    model = RecordedModel("smollm2")
    path, pte = tmp_path / "m.gguf", tmp_path / "m.pte"
    path.write_bytes(gguf_of(model))
    lengths = {"max_seq_len": 64, "max_context_len": 128}
    compile_checkpoint(path, pte, Precision("fp32", 32, "fp32", "fp32"), **lengths)
    options = ["--prompt-tokens", 32, "--generate-tokens", 4, "--repetitions", 2, "--json"]
    result = cli("bench", pte, "--peer", path, *options)
    assert result.code == 0, result.err
    speeds = json.loads(result.out)
    assert [(s["runtime"], s["test"]) for s in speeds] == [
        ("Edgewright", "pp32"), ("llama.cpp", "pp32"), ("Edgewright", "tg4"), ("llama.cpp", "tg4"),
    ]  # fmt: skip
    assert "SSE3" in speeds[1]["features"] or "NEON" in speeds[1]["features"]
    tokens = model.tokens[:60]
    with llama_cpp.LlamaCpp(llama_cpp.find_library(), str(path), 1, 128) as peer:
        theirs = np.exp(peer.score(tokens.tolist()) / 59)
    assert theirs == pytest.approx(perplexity_of_program(pte, tokens[None]), rel=0.01)
