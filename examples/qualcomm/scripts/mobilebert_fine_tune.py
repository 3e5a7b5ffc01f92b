"""MobileBERT that classifies sentences, as it was fine-tuned: ``--weights`` gives what training made.

python -m examples.qualcomm.scripts.mobilebert_fine_tune -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

import torch

from examples.qualcomm.flow import Inputs, Script, script_main, top_one
from examples.qualcomm.models.mobilebert import MobileBert


def sentence(generator: torch.Generator, length: int) -> Inputs:
    """Numbers of words, and which of them are words."""
    words = torch.randint(0, 30522, (1, length), generator=generator, dtype=torch.int32)
    return words, torch.ones(1, length, dtype=torch.int32)


SCRIPT = Script("mobilebert_fine_tune", "mb_qnn", lambda args: MobileBert(), sentence, 128, None, top_one)

if __name__ == "__main__":
    script_main(SCRIPT)
