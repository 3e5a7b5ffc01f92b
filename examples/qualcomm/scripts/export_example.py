"""One of these models by its name, in real numbers of 16 bits or quantized (``-q``).

python -m examples.qualcomm.scripts.export_example -m mv2 --soc_model SM8550
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace

from edgewright.backends.qualcomm import QuantDtype
from edgewright.cli import guard
from examples.qualcomm.flow import Script, main

MODELS = {
    "dl3": "deeplab_v3", "edsr": "edsr", "ic3": "inception_v3", "ic4": "inception_v4",
    "mobilebert": "mobilebert_fine_tune", "mv2": "mobilenet_v2", "mv3": "mobilenet_v3",
    "vit": "torchvision_vit", "w2l": "wav2letter",
}  # fmt: skip


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="export_example", description="Compiles a model by its name.")
    add = parser.add_argument
    add("-m", "--model_name", required=True, choices=sorted(MODELS))
    add("--soc", "--soc_model", dest="soc", default="SM8650", help="such as SM8550 (default: %(default)s)")
    add("-f", "-o", "--output_folder", default=".", help="where <name>.pte goes")
    add("-q", "--quantization", choices=("ptq", "qat"), help="in integers of 8 bits (default: real numbers of 16)")
    add("-g", "--generate_etrecord", action="store_true", help="also write etrecord.bin, for profiles")
    chosen, more = parser.parse_known_args(argv)
    script: Script = importlib.import_module(f"examples.qualcomm.scripts.{MODELS[chosen.model_name]}").SCRIPT
    scheme = QuantDtype.use_8a8w if chosen.quantization else None
    named = replace(
        script, file=chosen.model_name, scheme=scheme, adapt=None, training=chosen.quantization == "qat",
        record="etrecord.bin" if chosen.generate_etrecord else "",
    )  # fmt: skip
    return main(named, ["-m", chosen.soc, "-a", chosen.output_folder, "--compile_only", "--ci", *more])


if __name__ == "__main__":
    raise SystemExit(guard(lambda: run(sys.argv[1:])))
