"""The tiny model as a file, for tests that load one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.llm.tiny_model import write_model

    return write_model(tmp_path_factory.mktemp("llm") / "tiny.pte")
