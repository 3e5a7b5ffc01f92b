"""Ethos-U NPU simulator: decodes, disassembles and executes command streams bit-exactly. Does not import torch."""

from edgewright.backends.ethos_u.npu.disasm import disassemble
from edgewright.backends.ethos_u.npu.run import run, supported
from edgewright.backends.ethos_u.npu.stream import CommandStream, accelerator_of, decode, without_commands

__all__ = ["CommandStream", "accelerator_of", "decode", "disassemble", "run", "supported", "without_commands"]
