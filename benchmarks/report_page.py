"""How long pages of ``edgewright report`` take in Chromium to open, to open all modules of their graph, and to pan it.

    python benchmarks/report_page.py report.html [...] [--rounds 5]

Milliseconds, medians of rounds in which every page is opened anew: until the page's script has run, from the click on
"open all" to the next frame, and a frame while panning. Needs Playwright and Debian's Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

FRAMES = 30
LOAD = "performance.getEntriesByType('navigation')[0].loadEventEnd"
OPEN_ALL = """() => new Promise((done) => {
  const button = [...document.querySelectorAll("[aria-label='Open all modules']")].find((b) => b.offsetParent);
  const start = performance.now();
  button.click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""
PAN = """(frames) => new Promise((done) => {
  const canvas = [...document.querySelectorAll("canvas")].find((c) => c.offsetParent), start = performance.now();
  let left = frames;
  const step = () => {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: left % 2 ? "ArrowDown" : "ArrowUp" }));
    if (left-- > 0) requestAnimationFrame(step); else done((performance.now() - start) / frames);
  };
  step();
})"""


def measure(browser: Any, path: Path) -> tuple[float, float, float]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(path.resolve().as_uri())
    loaded = page.evaluate(LOAD)
    page.get_by_role("tab", name="Graph").click()
    page.wait_for_timeout(300)
    opened = page.evaluate(OPEN_ALL)
    page.wait_for_timeout(300)
    frame = page.evaluate(PAN, FRAMES)
    page.close()
    return loaded, opened, frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    table = Table()
    for column in ("page", "KiB", "opens, ms", "all modules, ms", "a frame of panning, ms"):
        table.add_column(column, justify="left" if column == "page" else "right")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        found: dict[Path, list[tuple[float, float, float]]] = {path: [] for path in args.page}
        for _ in range(args.rounds):
            for path, results in found.items():
                results.append(measure(browser, path))
        browser.close()
    for path, results in found.items():
        medians = [statistics.median(column) for column in zip(*results, strict=True)]
        table.add_row(path.name, f"{path.stat().st_size / 1024:.0f}", *(f"{value:.0f}" for value in medians))
    Console().print(table)


if __name__ == "__main__":
    main()
