"""``edgewright generate``, ``chat`` and ``serve``."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewright.cli import chat as chat_command
from edgewright.cli import generate as generate_command
from edgewright.cli.chat import Conversation
from edgewright.cli.language_model import describe, interruptible
from edgewright.llm.generation import Statistics
from tests.cli.cli import Cli
from tests.llm.fakes import Rows, Script, model
from tests.llm.live_server import wait_until
from tests.llm.tiny import tiny_json, tiny_tokenizer


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The commands load this instead of a file."""
    decoder = Script("hello there")
    for command in (generate_command, chat_command):
        monkeypatch.setattr(command, "load_model", lambda _: model(decoder))
    return decoder


def said(decoder: Rows) -> str:
    return tiny_tokenizer().decode(decoder.rows)


# --------------------------------------------------------------------------------------------------- generate


def test_generate(cli: Cli, script: Script) -> None:
    result = cli("generate", "lm.pte", "Hi", "--system", "Sys")
    assert (result.code, result.out, result.err) == (0, "hello there\n", "")
    assert said(script) == "system:Sysuser:Hiassistant=hello there"


def test_generate_raw_and_from_stdin(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("text="))
    assert cli("generate", "lm.pte", "-", "--raw").out == "hello there\n"
    assert said(script) == "text=hello there"


def test_generate_json(cli: Cli, script: Script) -> None:
    result = cli("generate", "lm.pte", "Hi", "--json", "--stop", " th", "--seed", "5")
    facts = json.loads(result.out)
    assert (facts["text"], facts["finish_reason"], facts["stop_string"], facts["seed"]) == ("hello", "stop", " th", 5)
    assert facts["prompt_tokens"] > 0 and facts["decode_tokens_per_s"] > 0


def test_every_option_reaches_the_model(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    lm = model(script)
    monkeypatch.setattr(lm, "chat", lambda _, **options: seen.update(options) or lm.generate("x="))
    monkeypatch.setattr(generate_command, "load_model", lambda _: lm)
    given = {
        "temperature": 0.5, "top_k": 3, "top_p": 0.25, "min_p": 0.125, "repetition_penalty": 1.5,
        "frequency_penalty": 0.5, "presence_penalty": 0.75, "seed": 9, "max_tokens": 4, "overflow": "slide",
    }  # fmt: skip
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert cli("generate", "lm.pte", "Hi", *words, "--stop", "a", "--stop", "b").code == 0
    assert seen == {**given, "stop": ["a", "b"]}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--temperature", "-1"], 2, "temperature: must be from 0 to 100"),
        (["--max-tokens", "0"], 2, "max_tokens: must be a whole number"),
        (["--top-k", "x"], 2, "invalid int value"),
        (["--raw", "--system", "x"], 2, "--system: needs a chat template"),
    ],
)
def test_generate_refuses(cli: Cli, script: Script, arguments: list[str], code: int, message: str) -> None:
    result = cli("generate", "lm.pte", "Hi", *arguments)
    assert result.code == code and message in result.err


def test_a_prompt_beyond_the_context(cli: Cli, script: Script) -> None:
    result = cli("generate", "lm.pte", "x" * 2000)
    assert result.code == 5 and "must have fewer tokens than the context, 1024" in result.err
    assert "--overflow slide" in result.err


def test_a_full_context_is_reported(cli: Cli, script: Script) -> None:
    script.say("a" * 2000)
    result = cli("generate", "lm.pte", "Hi")
    assert result.code == 0 and "The context is full" in result.err


def test_files(cli: Cli, tiny_pte: Path, tmp_path: Path) -> None:
    first = cli("generate", tiny_pte, "Hi", "--max-tokens", "4", "--seed", "3", "--threads", "1")
    assert first.code == 0 and first.out == cli("generate", tiny_pte, "Hi", "--max-tokens", "4", "--seed", "3").out
    (tmp_path / "t.json").write_bytes(tiny_json())
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}=")
    passed = ["--tokenizer", tmp_path / "t.json", "--chat-template", tmp_path / "t.jinja", "--max-tokens", "2"]
    assert json.loads(cli("generate", tiny_pte, "Hi", *passed, "--json").out)["prompt_tokens"] == 3
    assert cli("generate", tiny_pte, "Hi", "--chat-template", tmp_path / "none.jinja").code == 3
    assert cli("generate", tmp_path / "none.pte", "Hi").code == 3


def test_a_checkpoint_must_be_compiled_first(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF\3" + bytes(64))
    (tmp_path / "m" / "config.json").parent.mkdir()
    for place in (tmp_path / "m.gguf", tmp_path / "m"):
        result = cli("chat", place)
        assert result.code and "edgewright llm compile" in " ".join(result.err.split())


# --------------------------------------------------------------------------------------------------- Ctrl-C


def interrupt_at(decoder: Script, count: int) -> None:
    """Send Ctrl-C to this process during one of the decoder's calls."""
    forward = decoder.forward

    def interrupting(tokens: Any, position: int) -> Any:
        nonlocal count
        count -= 1
        if count == 0:
            signal.raise_signal(signal.SIGINT)
        return forward(tokens, position)

    decoder.forward = interrupting  # type: ignore[method-assign]


def test_ctrl_c_ends_generate(cli: Cli, script: Script) -> None:
    script.say("abcdefgh" * 9)
    calls = len(tiny_tokenizer().encode("<|im_start|>user:Hi<|im_end|><|im_start|>assistant="))
    interrupt_at(script, calls)
    result = cli("generate", "lm.pte", "Hi")
    assert result.code == 130 and 0 < len(result.out.strip()) < 30
    assert "abcdefgh".startswith(result.out.strip()[:8])


def test_ctrl_c_ends_a_reply_and_not_the_chat(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.say("abcdefgh" * 9)
    interrupt_at(script, 20)
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n"))
    result = cli("chat", "lm.pte")
    first, second = result.out.splitlines()
    assert result.code == 0 and 0 < len(first) < 40 and second == "abcdefgh" * 9
    assert "(stopped)" in result.err
    assert f"user:oneassistant:{first}user:two" in said(script)  # what was said stays


@pytest.fixture
def _python_handles_sigint() -> Iterator[None]:
    """As in a terminal: a job in the background starts with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_python_handles_sigint")
def test_a_second_ctrl_c_raises(script: Script) -> None:
    reply = model(script).generate("x=")

    def interrupt_twice() -> None:
        with interruptible(reply):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert reply.read() == "" and reply.finish_reason == "cancelled"


# --------------------------------------------------------------------------------------------------- chat


def talk(monkeypatch: pytest.MonkeyPatch, cli: Cli, *lines: str, arguments: tuple[str, ...] = ()) -> Any:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return cli("chat", "lm.pte", *arguments)


def test_chat_remembers(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    result = talk(monkeypatch, cli, "one", "", "two", arguments=("--system", "Sys"))
    assert (result.code, result.out) == (0, "hello there\nhello there\n")
    assert said(script) == "system:Sysuser:oneassistant:hello thereuser:twoassistant=hello there"


def test_chat_commands(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    result = talk(monkeypatch, cli, "/stats", "one", "/stats", "/reset", "two", "/rest", "/help", "/exit", "three")
    assert result.out == "hello there\nhello there\n"
    assert said(script) == "user:twoassistant=hello there"
    for text in ("No reply yet.", "reply ", "A new conversation.", "Did you mean /reset?", "Ctrl-C  stops a reply"):
        assert text in result.err
    assert all(f"{name:<8}" in result.err for name in ("/reset", "/stats", "/help", "/exit"))


def test_chat_refuses_a_wrong_option_at_once(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    result = talk(monkeypatch, cli, "one", arguments=("--temperature", "-1"))
    assert result.code == 2 and "temperature: must be from 0 to 100" in result.err


def test_a_message_that_fails_is_forgotten(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    result = talk(monkeypatch, cli, "x" * 2000, "two")
    assert result.code == 0 and "fewer tokens than the context" in result.err
    assert said(script) == "user:twoassistant=hello there"


def test_ctrl_c_at_the_prompt(script: Script, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    answers = iter([KeyboardInterrupt, "one", EOFError])

    def read(_: str) -> str:
        answer = next(answers)
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr("builtins.input", read)
    Conversation(model(script), None, {}).run("> ")
    captured = capsys.readouterr()
    assert captured.out == "\nhello there\n\n" and "/exit or Ctrl-D" in captured.err


def test_a_model_without_a_chat_template(cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = model(script)
    lm.template = None
    monkeypatch.setattr(chat_command, "load_model", lambda _: lm)
    monkeypatch.setattr(generate_command, "load_model", lambda _: lm)
    assert cli("chat", "lm.pte").code == 2
    assert cli("generate", "lm.pte", "x=").out == "hello there\n"


def test_description_of_statistics() -> None:
    facts = Statistics(100, 60, 11, 0.5, 2.0, 10)
    assert describe(facts) == "prompt 100 tokens (60 cached): 500 ms, 80.0 tokens/s; reply 11 tokens: 5.00 tokens/s"
    assert describe(Statistics(3, 0, 1, 0.1, 0.0, 0)) == "prompt 3 tokens: 100 ms, 30.0 tokens/s; reply 1 token"


# --------------------------------------------------------------------------------------------------- serve


def test_serve(tiny_pte: Path) -> None:
    """A process of its own: it says where it listens, answers, and ends with Ctrl-C."""
    words = [sys.executable, "-m", "edgewright", "serve", str(tiny_pte), "--port", "0", "--name", "mine"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("mine: http://127.0.0.1:") and line.endswith("/v1 (Ctrl-C stops)\n")
            url = line.split()[1]
            wait_until(lambda: _answers(url))
            body = {"model": "mine", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "seed": 1}
            answer = httpx.post(f"{url}/chat/completions", json=body, timeout=60).json()
            assert answer["usage"]["completion_tokens"] <= 3 and answer["choices"][0]["message"]["role"] == "assistant"
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/models").status_code == 200
    except httpx.HTTPError:
        return False


def test_a_port_in_use(cli: Cli, tiny_pte: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = cli("serve", tiny_pte, "--port", port)
    assert result.code == 2 and f"127.0.0.1:{port}: cannot be listened on" in result.err


@pytest.mark.parametrize("arguments", [["--port", "-1"], ["--port", "65536"], ["--queue", "-1"], ["--queue", "9999"]])
def test_serve_refuses(cli: Cli, tiny_pte: Path, arguments: list[str]) -> None:
    result = cli("serve", tiny_pte, *arguments)
    assert result.code == 2 and f"{arguments[0]}: must be from 0 to" in result.err


@pytest.mark.parametrize("command", ["generate", "chat", "serve"])
def test_help_needs_no_package(command: str) -> None:
    missing = "('tokenizers', 'jinja2', 'starlette', 'uvicorn', 'torch')"
    block = f"import sys; sys.modules.update(dict.fromkeys({missing}))"  # importing one of them fails
    code = f"{block}; from edgewright.cli import main; sys.exit(main(['{command}', '--help']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and "lm.pte" in done.stdout


@pytest.mark.parametrize("command", ["generate", "serve"])
def test_what_is_missing_is_named(command: str, tiny_pte: Path) -> None:
    block = "import sys; sys.modules.update(dict.fromkeys(('tokenizers', 'starlette')))"
    words = [command, str(tiny_pte), *(["Hi"] if command == "generate" else ["--port", "0"])]
    code = f"{block}; from edgewright.cli import main; sys.exit(main({words}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 6 and "pip install 'edgewright[llm]'" in done.stderr
