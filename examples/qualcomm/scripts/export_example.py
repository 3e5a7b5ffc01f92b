"""One of these models by its name, in real numbers of 16 bits.

python -m examples.qualcomm.scripts.export_example -m mv2 --soc_model SM8550
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace

from edgewright.cli import guard
from examples.qualcomm.flow import Script, main

MODELS = {
    "dl3": "deeplab_v3", "edsr": "edsr", "ic3": "inception_v3", "ic4": "inception_v4",
    "mobilebert": "mobilebert_fine_tune", "mv2": "mobilenet_v2", "mv3": "mobilenet_v3",
    "vit": "torchvision_vit", "w2l": "wav2letter",
}  # fmt: skip


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="export_example", description="Compiles a model by its name.")
    parser.add_argument("-m", "--model_name", required=True, choices=sorted(MODELS))
    parser.add_argument("--soc_model", required=True, help="such as SM8550")
    parser.add_argument("-o", "--output_folder", default=".", help="where <name>.pte goes")
    chosen, more = parser.parse_known_args(argv)
    script: Script = importlib.import_module(f"examples.qualcomm.scripts.{MODELS[chosen.model_name]}").SCRIPT
    named = replace(script, file=chosen.model_name, scheme=None)
    return main(named, ["-m", chosen.soc_model, "-a", chosen.output_folder, "--compile_only", "--ci", *more])


if __name__ == "__main__":
    guard(lambda: run(sys.argv[1:]))
