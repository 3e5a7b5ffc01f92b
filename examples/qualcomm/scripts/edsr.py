"""EDSR: an image of twice the size.

python -m examples.qualcomm.scripts.edsr -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgewright.errors import UsageError
from examples.qualcomm.flow import Script, image, script_main
from examples.qualcomm.models.small import EDSR
from examples.qualcomm.pictures import PLAIN, Inputs, from_folder

_REFUSED = {
    "default_dataset": "Get DIV2K (data.vision.ee.ethz.ch/cvl/DIV2K) and name its folder of small images: -l FOLDER.",
    "hr_ref_dir": "What is printed compares with the model, not with large images: leave it out.",
}


def flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-l", "--lr_dir", help="a folder of small images")
    add("-r", "--hr_ref_dir", help=argparse.SUPPRESS)
    add("-d", "--default_dataset", action="store_true", help=argparse.SUPPRESS)
    add("--dataset", help="an .npz of arrays")


def data(args: argparse.Namespace) -> list[Inputs]:
    for flag, remedy in _REFUSED.items():
        if getattr(args, flag):
            raise UsageError(f"--{flag}", "is not supported", remedy=remedy)
    return from_folder(Path(args.lr_dir), args.count, args.size, PLAIN) if args.lr_dir else []


SCRIPT = Script("edsr", "edsr_qnn", lambda args: EDSR(), image, 224, flags=flags, data=data)

if __name__ == "__main__":
    script_main(SCRIPT)
