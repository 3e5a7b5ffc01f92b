"""Wav2Letter: letters that are heard.

python -m examples.qualcomm.scripts.wav2letter -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

import argparse

import torch

from examples.qualcomm.flags import arrays, pretrained
from examples.qualcomm.flow import Script, script_main
from examples.qualcomm.models.small import Wav2Letter
from examples.qualcomm.pictures import Inputs


def sound(generator: torch.Generator, length: int) -> Inputs:
    """Features of sound over time."""
    return (torch.randn(1, 13, length, generator=generator),)


def flags(parser: argparse.ArgumentParser) -> None:
    arrays(parser)
    pretrained(parser)


SCRIPT = Script("wav2letter", "w2l_qnn", lambda args: Wav2Letter(), sound, 700, flags=flags)

if __name__ == "__main__":
    script_main(SCRIPT)
