"""Wav2Letter: letters that are heard.

python -m examples.qualcomm.scripts.wav2letter -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

import torch

from examples.qualcomm.flow import Inputs, Script, script_main
from examples.qualcomm.models.small import Wav2Letter


def sound(generator: torch.Generator, length: int) -> Inputs:
    """Features of sound over time."""
    return (torch.randn(1, 13, length, generator=generator),)


SCRIPT = Script("wav2letter", "w2l_qnn", lambda args: Wav2Letter(), sound, 700)

if __name__ == "__main__":
    script_main(SCRIPT)
