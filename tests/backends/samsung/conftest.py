"""A stand-in SDK, compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.samsung.standin_sdk import build_sdk


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdk(tmp_path_factory.mktemp("litecore") / "sdk", "-DMODES")


@pytest.fixture
def installed(sdk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in SDK, where AI LiteCore is looked for."""
    monkeypatch.setenv("EXYNOS_AI_LITECORE_ROOT", str(sdk))
    return sdk
