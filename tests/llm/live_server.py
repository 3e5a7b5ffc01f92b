"""The server on a free port of this machine, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import uvicorn

from edgewright.llm import LanguageModel
from edgewright.llm.server import create_app


class Live:
    def __init__(self, url: str) -> None:
        self.url = url

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=30)


@contextmanager
def serve(model: LanguageModel, **options: Any) -> Iterator[Live]:
    config = uvicorn.Config(create_app(model, **options), port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Live(f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
