"""What tests of the page in a browser share."""

from __future__ import annotations

import time
from typing import Any


def wait_until(page: Any, condition: str, seconds: float = 30.0) -> None:
    """Wait until a JavaScript expression is true.

    Playwright's ``wait_for_function`` evaluates text in the page, which the page's Content-Security-Policy forbids if
    the condition does not hold at once.
    """
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"not true after {seconds:.0f} seconds: {condition}"
        page.wait_for_timeout(20)
