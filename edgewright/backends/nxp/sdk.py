"""NXP's converter, behind its own interface: the package ``eiq_neutron_sdk``, found when it is asked for.

It runs in a process of its own, so that a crash of it is an error of ours.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from edgewright.errors import MissingError, UsageError, VendorError

PACKAGE = "eiq_neutron_sdk"
INSTALL = "pip install --index-url https://eiq.nxp.com/repository eiq-neutron-sdk"
PASSES = "HoistSliceAboveTranspose,MergeTranspose"  # those that the converter is told to leave out
_SECONDS = 3600
_SHOWN = 2000  # characters of the converter's last words


def converter_name(flavor: str | None = None) -> str:
    """The module that converts; older releases have one for each release of NXP's SDK."""
    if flavor is None:
        return f"{PACKAGE}.neutron_converter"
    if not re.fullmatch(r"\w{1,64}", flavor):
        raise UsageError("neutron_converter_flavor", "must be letters, digits and _", value=flavor)
    return f"neutron_converter_{flavor}.neutron_converter"


def installed(flavor: str | None = None) -> bool:
    package = converter_name(flavor).partition(".")[0]
    return find_spec(package) is not None


def target_object(name: str) -> Any:
    """What the SDK says of a chip, or None if it is not installed or does not know it."""
    if not installed():
        return None
    utils = import_module(f"{PACKAGE}.neutron_library_utils")
    return import_module(converter_name()).getNeutronTarget(name) if utils.isNeutronTarget(name) else None


def require(flavor: str | None = None) -> None:
    if not installed(flavor):
        package = converter_name(flavor).partition(".")[0]
        remedy = (
            f"{INSTALL} (NXP's own index), or make a file for this machine only: "
            'generate_neutron_compile_spec("imxrt700", simulate_only=True), edgewright compile --simulate-only.'
        )
        raise MissingError(package, "is not installed; microcode for Neutron is made by NXP's converter", remedy=remedy)


def convert(tflite: bytes, target: str, *, flavor: str | None = None, **options: bool) -> bytes:
    """The converter's TFLite file for ours."""
    require(flavor)
    asked = json.dumps({"module": converter_name(flavor), "target": target, **options}, sort_keys=True)
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "edgewright.backends.nxp.convert", asked], input=tflite, capture_output=True,
        timeout=_SECONDS, env={**os.environ, "PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace")[-_SHOWN:]
        raise VendorError("NXP's Neutron converter", "ended without a result", value=f"{done.returncode}: {said}")
    return done.stdout
