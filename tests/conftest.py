"""A test draws the same numbers in every run: whatever ran before it, in this process or another.

Workers share the tests out by how fast they are, so that what a test finds in the global generators would else be what
other tests, other ones each time, left there.
"""

from __future__ import annotations

import random
import sys
import zlib

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("again", derandomize=True, deadline=None)  # a slow machine is no reason to fail
settings.load_profile("again")


def seed(name: str) -> None:
    """Start the global generators anew. By name: a fixture's weights are not the numbers that its test draws."""
    number = zlib.crc32(name.encode())
    random.seed(number)
    np.random.seed(number)
    torch = sys.modules.get("torch")  # not imported for tests that do without
    if torch is not None:
        torch.manual_seed(number)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    seed(f"{fixturedef.baseid}::{fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    seed(item.nodeid)
