"""``python serve.py peer file inputs threads``: the process that ``edgewright bench`` starts, for benchmarks too."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[2] / "edgewright" / "peers" / "serve.py"), run_name="__main__")
