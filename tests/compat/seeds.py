"""ExecuTorch's pages about the five backends, and the Python in them, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DATA / "seeds").glob("*.md"))}


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)
