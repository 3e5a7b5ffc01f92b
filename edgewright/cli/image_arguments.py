"""Options that say how to normalize images, of commands that compile and of those that run."""

from __future__ import annotations

import argparse
from typing import Any


def add_image_arguments(parser: argparse.ArgumentParser) -> None:
    """How to normalize images."""
    add = parser.add_argument
    add(
        "--mean", action=_ChannelValues, nargs="+", metavar="M",
        help="of images: x = (pixel - mean) / std, pixels 0..255",
    )  # fmt: skip
    add("--std", action=_ChannelValues, nargs="+", metavar="S", help="of images: one value, or one per channel")


class _ChannelValues(argparse.Action):
    """Numbers with spaces or commas between them."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        texts = [text for value in values for text in value.split(",") if text]
        try:
            setattr(namespace, self.dest, [float(text) for text in texts])
        except ValueError:
            rule = f"must be one number, or one per channel; got {' '.join(values)}"
            raise argparse.ArgumentError(self, rule) from None
