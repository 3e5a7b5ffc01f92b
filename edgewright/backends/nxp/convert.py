"""Runs NXP's converter on the TFLite file at standard input; its result goes to standard output."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

from edgewright.backends.nxp.sdk import PASSES


def convert(tflite: bytes, asked: dict[str, Any]) -> bytes:
    """One call of the SDK, with the options that ExecuTorch gives it."""
    converter = import_module(asked["module"])
    context = converter.CompilationContext()
    context.targetOpts = converter.getNeutronTarget(asked["target"])
    options = context.compilationOpts
    options.minNumOpsPerGraph = 1
    options.excludeGraphPasses = PASSES
    options.fetchConstantsToSRAM = asked["fetch_constants_to_sram"]
    options.dumpKernelSelectionCode = asked["dump_kernel_selection_code"]
    if asked["use_profiling"]:
        options.useProfiling = True
        options.dumpAfterImport = options.dumpAfterGenerate = "console"
        options.verbose = True
    return bytes(converter.convertModel(list(tflite), context))


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # what the converter prints must not mix with the result
    made = convert(sys.stdin.buffer.read(), json.loads(sys.argv[1]))
    with os.fdopen(out, "wb") as file:
        file.write(made)


if __name__ == "__main__":
    main()
