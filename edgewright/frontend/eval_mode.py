"""Evaluation mode for the time of an export: the caller's model is left in the mode it was in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """Set every module of ``model`` to evaluation mode, and restore the mode of each at exit.

    >>> model = torch.nn.Sequential(torch.nn.Dropout()).train()
    >>> with eval_mode(model):
    ...     model[0].training
    False
    >>> model[0].training
    True
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
