"""Draws the pictures of docs/report.md and docs/explore.md: ``python tools/report_pictures.py [NAME ...]``. Needs
Playwright and Chromium.

They show reports of the demo's model, and the sweep and the search that docs/explore.md describes; measured times in
them are of the machine that drew them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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
DOCS = FOLDER / "explore.md"
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


def write_sweep(path: Path) -> None:
    """The sweep of docs/explore.md. Its results stay in build/: drawing again runs nothing."""
    text = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)[0]
    (path.parent / "sweep.toml").write_text(text)
    results = str(FOLDER.parent / "build" / "cifarnet")
    for arguments in ([str(path.parent / "sweep.toml"), "-o", results], ["--show", results, "--html", str(path)]):
        subprocess.run([sys.executable, "-m", "edgewright", "sweep", "--quiet", *arguments], check=True)


def sweep(page: Any) -> None:
    """The plot of times that Vela estimates."""
    page.locator("h3", has_text="Vela").first.evaluate("head => head.scrollIntoView()")


def write_search(path: Path) -> None:
    """The search of docs/explore.md, with its metric. Its results stay in build/ too."""
    (path.parent / "metrics.py").write_text(re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[0])
    results = str(FOLDER.parent / "build" / "found")
    new = [
        "edgewright.demo.model:cifarnet", "--target", "ethos-u55-128", "--calibrate",
        "edgewright.demo.model:calibration", "--metric", "metrics:accuracy", "--max-drop", "0.5%", "-o", results,
    ]  # fmt: skip
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), str(path.parent)])}
    for arguments in (new, ["--show", results, "--html", str(path)]):
        command = [sys.executable, "-m", "edgewright", "search", "--quiet", *arguments]
        subprocess.run(command, check=True, env=variables)


PICTURES = {
    "report-graph.png": (write_page, graph),
    "report-memory.png": (write_portable, memory),
    "explore-pareto.png": (write_sweep, sweep),
    "explore-search.png": (write_search, sweep),
}
HEIGHTS = {"explore-pareto.png": 415, "explore-search.png": 415}  # of the part that is drawn


def main() -> None:
    os.chdir(FOLDER.parent)  # source lines in the page are relative to the working directory
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in sys.argv[1:] or PICTURES:
            write, arrange = PICTURES[name]
            path = Path(folder) / "report.html"
            write(path)
            page = browser.new_page(viewport=SIZE)
            page.goto(path.as_uri())
            arrange(page)
            height = HEIGHTS.get(name, SIZE["height"])
            page.screenshot(path=FOLDER / name, clip={"x": 0, "y": 0, "width": SIZE["width"], "height": height})
        browser.close()


if __name__ == "__main__":
    main()
