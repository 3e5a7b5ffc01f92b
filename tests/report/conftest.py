"""A browser for the tests of reports: pages whose console and requests are recorded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewright.report.model import Report
from edgewright.report.page import save
from tests.report.programs import large, portable

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield instance
        instance.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    one, other = portable(ram=1 << 18, flash=1 << 20), portable()
    one.name, other.name = "one.pte", "other.pte"
    one.measures.sqnr, other.measures.sqnr = 40.0, 30.0
    other.graphs = large(600).graphs + other.graphs
    target = tmp_path_factory.mktemp("report") / "report.html"
    save(Report("one.pte, other.pte", [one, other]), target)
    return target


class Watched:
    """A page whose console and requests are recorded."""

    def __init__(self, browser: Any, target: Path, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(target.as_uri())

    def close(self) -> None:
        assert self.errors == []
        assert len(self.requests) == 1 and self.requests[0].startswith("file:")
        self.page.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    opened: list[Watched] = []

    def make(target: Path, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": 900}
        opened.append(Watched(browser, target, viewport=size, color_scheme=scheme, **options))
        return opened[-1].page

    yield make
    for watched in opened:
        watched.close()
