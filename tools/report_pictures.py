"""Draws the pictures of docs/report.md: ``python tools/report_pictures.py``. Needs Playwright and Chromium.

They show a report of the demo's model for two targets; times in them are of the machine that drew them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import edgewright as ew
from edgewright.demo import MODEL
from edgewright.demo.model import calibration, cifarnet
from edgewright.report.collect import Options, collect
from edgewright.report.model import Report
from edgewright.report.page import save
from edgewright.runtime.example_inputs import ones

FOLDER = Path(__file__).parents[1] / "docs"
TARGETS = ("xnnpack", "ethos-u55-128")
SIZE = {"width": 1100, "height": 640}


def write_page(path: Path) -> None:
    model = cifarnet()
    results = ew.compile(
        model, model.example_inputs(), TARGETS, quantize="int8", calibration=calibration(), quiet=True
    )  # fmt: skip
    results.save(path.parent, "cifarnet")
    results.report.save_html(path)


def show(page: Any, tab: str) -> None:
    page.get_by_role("tab", name=tab).click()
    page.wait_for_timeout(300)


def graph(page: Any) -> None:
    """The model's graph with a selected operator."""
    show(page, "Graph")
    page.get_by_label("Search the graph").locator("visible=true").first.fill("conv2")
    page.keyboard.press("Enter")
    page.get_by_label("Search the graph").locator("visible=true").first.fill("")
    page.wait_for_timeout(300)


def memory(page: Any) -> None:
    """The arena over time, in dark colors."""
    page.emulate_media(color_scheme="dark")
    show(page, "Memory")


def write_portable(path: Path) -> None:
    """The program that the package ships: a list of kernel calls, with tensors between them."""
    save(Report("cifarnet.pte", [collect(MODEL, "cifarnet.pte", Options(inputs=ones, ram=384 << 10))]), path)


PICTURES = {"report-graph.png": (write_page, graph), "report-memory.png": (write_portable, memory)}


def main() -> None:
    os.chdir(FOLDER.parent)  # source lines in the page are relative to the working directory
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (write, arrange) in PICTURES.items():
            path = Path(folder) / "report.html"
            write(path)
            page = browser.new_page(viewport=SIZE)
            page.goto(path.as_uri())
            arrange(page)
            page.screenshot(path=FOLDER / name)
        browser.close()


if __name__ == "__main__":
    main()
