"""ExecuTorch's own runner of language models, in a process of its own: ``python -m tests.llm.runner_process``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_stock_runner(program: Path, tokenizer: Path, prompt: str, new_tokens: int) -> str:
    """What ``TextLLMRunner`` generates greedily."""
    request = json.dumps([str(program), str(tokenizer), prompt, new_tokens])
    command = [sys.executable, "-m", "tests.llm.runner_process", request]
    done = subprocess.run(command, capture_output=True, timeout=300, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    answer: str = json.loads(done.stdout.decode().splitlines()[-1])
    return answer


def main(program: str, tokenizer: str, prompt: str, new_tokens: int) -> None:
    answer = os.dup(1)
    os.dup2(2, 1)  # the runner writes to standard output
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401
    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

    config: Any = GenerationConfig()
    config.temperature, config.max_new_tokens, config.echo = 0.0, new_tokens, False
    pieces: list[str] = []
    TextLLMRunner(program, tokenizer).generate(prompt, config, pieces.append, lambda stats: None)
    os.write(answer, json.dumps("".join(pieces)).encode() + b"\n")


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
