"""What a delegate takes of a device without an operating system: the result of a backend's ``device_memory``.

A backend whose delegates run under ExecuTorch's bare-metal runtime provides it (``BackendInfo.device_memory``).
Programs with delegates of other backends cannot be exported to a board.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.layer_table import DelegateLayers


@dataclass(frozen=True)
class DeviceBlob:
    """A delegate of a file: its blob, its compile specs, what the file stores by name, and the names of its layers."""

    blob: Buffer = field(repr=False)
    specs: Mapping[str, bytes]
    named_data: Mapping[str, Buffer]
    layers: DelegateLayers = field(default_factory=DelegateLayers)


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of one delegate.

    ``parts``: what the blob consists of, in bytes, by name; the rest of the blob is headers. ``scratch``: taken from
    the temp allocator during a call, with ``alignment``. ``handle_words``: upper bound of what the backend's runtime
    takes from the method allocator, in machine words. ``fast_scratch``: provided by the application;
    ``fast_scratch_exact`` is False if only an upper bound is known. ``final_tables``, ``final_table_bytes``,
    ``final_command_bytes``: what only operators after the last convolution or matrix product need, such as a softmax;
    ``final_layers``: the modules that they come from, if the file has their names.
    ``constants_in_sram``: constants are read from SRAM; ``scratch_in_dram``: the scratch is in DRAM.
    """

    target: str
    parts: Mapping[str, int]
    scratch: int
    alignment: int
    handle_words: int
    fast_scratch: int = 0
    fast_scratch_exact: bool = True
    final_tables: int = 0
    final_table_bytes: int = 0
    final_command_bytes: int = 0
    final_layers: tuple[str, ...] = ()
    constants_in_sram: bool = False
    scratch_in_dram: bool = False


@dataclass(frozen=True)
class DeviceCommands:
    """What an NPU executes of one delegate. ``inputs``, ``outputs``: offset in the scratch memory, and bytes."""

    commands: bytes = field(repr=False)
    weights: bytes = field(repr=False)
    scratch: int
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
