"""DeepLabV3-ResNet101: what every pixel of an image is.

python -m examples.qualcomm.scripts.deeplab_v3 -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

import argparse
from pathlib import Path

from examples.qualcomm.flow import Script, image, script_main, top_one
from examples.qualcomm.models.deeplab import DeepLabV3
from examples.qualcomm.pictures import Inputs
from examples.qualcomm.voc import download


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-d", "--download", action="store_true", help="get images of PASCAL VOC 2009, 900 MB")
    parser.add_argument("--dataset", help="a folder of images, or an .npz of arrays")


def data(args: argparse.Namespace) -> list[Inputs]:
    return download(Path(args.artifact), args.count, args.size) if args.download else []


SCRIPT = Script(
    "deeplab_v3", "dlv3_qnn", lambda args: DeepLabV3(), image, 224, report=top_one, flags=flags, data=data
)  # fmt: skip

if __name__ == "__main__":
    script_main(SCRIPT)
