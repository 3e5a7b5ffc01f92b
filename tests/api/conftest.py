"""One compilation of a small model for every backend, shared by the tests that look at it."""

from __future__ import annotations

import pytest

import edgewright as ew
from edgewright.api.result import CompileResults
from tests.api.models import calls, net

TARGETS = ("xnnpack", "ethos-u55-128", "ethos-u55-256", "sm8550", "imxrt700")


@pytest.fixture(scope="session")
def compiled() -> CompileResults:
    return ew.compile(net(), calls(1)[0], TARGETS, quantize="int8", calibration=calls())
