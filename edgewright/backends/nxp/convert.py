"""Converter process: reads a TFLite file from standard input and writes NXP's converted file to standard output."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

from edgewright.backends.nxp.sdk import EXCLUDED_PASSES, UNKNOWN_OPTION


def convert(tflite: bytes, request: dict[str, Any]) -> bytes:
    """Call the SDK with the same options as ExecuTorch."""
    converter = import_module(request["module"])
    context = converter.CompilationContext()
    context.targetOpts = converter.getNeutronTarget(request["target"])
    options = context.compilationOpts
    options.minNumOpsPerGraph = 1
    options.excludeGraphPasses = EXCLUDED_PASSES
    options.fetchConstantsToSRAM = request["fetch_constants_to_sram"]
    options.dumpKernelSelectionCode = request["dump_kernel_selection_code"]
    if request["use_profiling"]:
        options.useProfiling = True
        options.dumpAfterImport = options.dumpAfterGenerate = "console"
        options.verbose = True
    for name, value in request["extra"].items():
        if not hasattr(options, name):
            names = " ".join(n for n in dir(options) if not n.startswith("_"))
            sys.exit(f"{UNKNOWN_OPTION}{name}; it has {names}")
        setattr(options, name, value)
    return bytes(converter.convertModel(list(tflite), context))


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # redirect the converter's messages: standard output carries the result
    converted = convert(sys.stdin.buffer.read(), json.loads(sys.argv[1]))
    with os.fdopen(out, "wb") as file:
        file.write(converted)


if __name__ == "__main__":
    main()
