"""Stands in for a compiler that crashes: run as a module, it ends itself."""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    print("last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
