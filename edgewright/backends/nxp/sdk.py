"""Interface to NXP's converter (package ``eiq_neutron_sdk``, imported on first use).

The converter runs in a subprocess: a crash becomes a ``VendorError`` instead of ending the host process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from edgewright.errors import MissingError, UsageError, VendorError
from edgewright.hints import not_among

PACKAGE = "eiq_neutron_sdk"
INSTALL = "pip install --index-url https://eiq.nxp.com/repository eiq-neutron-sdk"
EXCLUDED_PASSES = "HoistSliceAboveTranspose,MergeTranspose"  # graph passes that the converter skips
UNKNOWN_OPTION = "no such option of the converter: "
_TIMEOUT_SECONDS = 3600
_MAX_STDERR = 2000  # characters of the converter's output to show


def converter_name(flavor: str | None = None) -> str:
    """The converter's module; older releases have one package per SDK release."""
    if flavor is None:
        return f"{PACKAGE}.neutron_converter"
    if not re.fullmatch(r"\w{1,64}", flavor):
        raise UsageError("neutron_converter_flavor", "must be letters, digits and _", value=flavor)
    return f"neutron_converter_{flavor}.neutron_converter"


def is_installed(flavor: str | None = None) -> bool:
    package = converter_name(flavor).partition(".")[0]
    return find_spec(package) is not None


def target_object(name: str) -> Any:
    """The SDK's description of a chip, or None if the SDK is not installed or does not support the chip."""
    if not is_installed():
        return None
    utils = import_module(f"{PACKAGE}.neutron_library_utils")
    return import_module(converter_name()).getNeutronTarget(name) if utils.isNeutronTarget(name) else None


def require(flavor: str | None = None) -> None:
    if not is_installed(flavor):
        package = converter_name(flavor).partition(".")[0]
        remedy = (
            f"{INSTALL} (NXP's package index), or compile for simulation on the host: "
            'generate_neutron_compile_spec("imxrt700", simulate_only=True), edgewright compile --simulate-only.'
        )
        raise MissingError(package, "is not installed, and microcode for Neutron needs NXP's converter", remedy=remedy)


def convert(
    tflite: bytes, target: str, *, flavor: str | None = None, extra: Mapping[str, bool | int | str] | None = None,
    **options: bool,
) -> bytes:  # fmt: skip
    """Convert a TFLite file; returns the converter's TFLite file. ``extra``: further options of the converter by
    name."""
    require(flavor)
    fields = {"module": converter_name(flavor), "target": target, "extra": dict(extra or {}), **options}
    request = json.dumps(fields, sort_keys=True)
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.run(
        [sys.executable, "-m", "edgewright.backends.nxp.convert", request], input=tflite, capture_output=True,
        timeout=_TIMEOUT_SECONDS, env={**os.environ, "PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    if process.returncode:
        output = (process.stderr or process.stdout).decode("utf-8", "replace")
        if (unknown := re.search(rf"{UNKNOWN_OPTION}(\w+); it has (.*)", output)) is not None:
            raise not_among("extra_flags: option of NXP's converter", unknown[1], unknown[2].split())
        value = f"{process.returncode}: {output[-_MAX_STDERR:]}"
        raise VendorError("NXP's Neutron converter", "ended without a result", value=value)
    return process.stdout
