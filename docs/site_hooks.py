"""For the site: links to files of the repository that are no pages become their paths."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``[the examples](../examples/arm)`` is a link in the repository, and ``the examples (examples/arm)`` here."""
    return _OUTSIDE.sub(lambda found: _shown(found[1], found[2]), markdown)


def _shown(text: str, path: str) -> str:
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"
