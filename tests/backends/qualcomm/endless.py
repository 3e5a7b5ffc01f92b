"""Stands in for a compiler that never ends."""

from __future__ import annotations

import time

if __name__ == "__main__":
    while True:
        time.sleep(1)
