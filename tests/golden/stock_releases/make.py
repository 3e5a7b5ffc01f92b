"""Makes golden files with the exporter and the runtime of each release of ExecuTorch.

    python -m tests.golden.stock_releases.make --environments DIR [release ...]

``DIR`` is that of ``tests.interop.stock_releases``. Each release runs ``export.py`` in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.interop.stock_releases.environments import TORCH, default_folder, exporter_paths

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=Path, default=default_folder(), required=default_folder() is None)
    parser.add_argument(
        "releases", nargs="*", metavar="release", help=f"any of {', '.join(TORCH)}; all if none is given"
    )
    options = parser.parse_args()
    for release in options.releases or TORCH:
        (HERE / release).mkdir(exist_ok=True)
        paths = [str(path) for path in exporter_paths(options.environments, release)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        subprocess.run([sys.executable, str(HERE / "export.py"), str(HERE / release)], env=environment, check=True)
        print(release, sum(path.stat().st_size for path in (HERE / release).iterdir()), "bytes", flush=True)


if __name__ == "__main__":
    main()
