"""The tiny model as a file, for tests that load one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.llm.tiny_model import tiny_model_bytes

    path = tmp_path_factory.mktemp("llm") / "tiny.pte"
    path.write_bytes(tiny_model_bytes())
    return path
