"""MobileBERT that classifies sentences, as it was fine-tuned: ``--weights`` gives what training made.

python -m examples.qualcomm.scripts.mobilebert_fine_tune -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from edgewright.backends.qualcomm import QuantDtype
from edgewright.errors import UsageError
from examples.qualcomm.flags import arrays, pretrained
from examples.qualcomm.flow import Script, script_main, top_one
from examples.qualcomm.models.mobilebert import MobileBert
from examples.qualcomm.pictures import Inputs


def sentence(generator: torch.Generator, length: int) -> Inputs:
    """Numbers of words, and which of them are words."""
    words = torch.randint(0, 30522, (1, length), generator=generator, dtype=torch.int32)
    return words, torch.ones(1, length, dtype=torch.int32)


def flags(parser: argparse.ArgumentParser) -> None:
    arrays(parser)
    pretrained(parser)
    add = parser.add_argument
    add("-F", "--use_fp16", action="store_true", help="real numbers of 16 bits, instead of integers")
    add("-P", "--ptq", default="8a8w", choices=("8a8w", "16a16w", "16a8w", "16a4w"), help="how it is quantized")
    add("--num_epochs", type=int, help=argparse.SUPPRESS)


def adapt(script: Script, args: argparse.Namespace) -> Script:
    if args.num_epochs is not None:
        remedy = "Fine-tune it elsewhere, and give what that made: -p finetuned.model."
        raise UsageError("--num_epochs", "is not supported: nothing is trained here", remedy=remedy)
    if args.use_fp16 or args.fp16:
        return replace(script, file="mb_qnn", scheme=None)
    return replace(script, scheme=QuantDtype[f"use_{args.ptq}"])


SCRIPT = Script(
    "mobilebert_fine_tune", "ptq_mb_qnn", lambda args: MobileBert(), sentence, 128, report=top_one, flags=flags,
    adapt=adapt, spread=0.02,
)  # fmt: skip

if __name__ == "__main__":
    script_main(SCRIPT)
