"""Format of the QNN delegate's blob: a header and an unmodified context binary of Qualcomm's compiler.

The header contains a signature by which devices identify contexts. Here it is a hash of the context, including the
names of its graphs: output is reproducible, and a corrupted context is detected before it reaches the native library.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from edgewright.backends.qualcomm.qnn.info import compiler_settings
from edgewright.backends.qualcomm.target import FLAGS, QnnTarget
from edgewright.errors import FormatError, VendorError
from edgewright.formats import checked_int
from edgewright.formats.flatbuffer import Buffer

MAGIC = 0x5678ABCD
_HEADER = struct.Struct("<IqQ")
_START = 256
_CONTEXT = bytes((0, 0, 0, 2, 0, 0, 0, 3))


@dataclass(frozen=True)
class Blob:
    """A context binary and its signature."""

    signature: int
    context: bytes

    @property
    def intact(self) -> bool:
        """True if the signature is the hash that Edgewright writes; stock writes the time of day."""
        return self.signature == signature_of(self.context)


def signature_of(context: bytes) -> int:
    """63 bits of the context's SHA-256, since the signature is a signed 64-bit integer."""
    return int.from_bytes(hashlib.sha256(context).digest()[:8], "little") >> 1


def write_blob(context: bytes) -> bytes:
    """Serialize a blob."""
    header = _HEADER.pack(MAGIC, signature_of(context), len(context))
    return header.ljust(_START, b"\0") + context


def read_blob(data: Buffer) -> Blob:
    """Read and check a blob. Graphs for on-device compilation are rejected."""
    view = memoryview(data).cast("B")
    try:
        checked_int.check_range(0, _START, len(view), "the header")
        magic, signature, size = _HEADER.unpack_from(view)
        if magic != MAGIC:
            raise FormatError(f"must start with {MAGIC:#x}", where="magic", value=hex(magic), offset=0)
        if any(view[_HEADER.size : _START]):
            raise FormatError("must be zero after its fields", where="header", offset=_HEADER.size)
        checked_int.check_range(_START, size, len(view), "the context")
        if checked_int.add(_START, size) != len(view):
            raise FormatError("must end with its context", value=len(view), offset=_START + size)
        context = bytes(view[_START:])
        if context[: len(_CONTEXT)] != _CONTEXT:
            raise FormatError("must be a context binary", where="context", value=context[:8], offset=_START)
    except FormatError as error:
        raise error.inside("QNN blob") from None
    return Blob(signature, context)


_COMPILER_NAMES = {"QCM6490": "QCS6490"}  # the compiler's names of SoCs
_ALWAYS_REPORTED = ("soc_type", "arch", "vtcm_size")  # settings that every release reports; QNN 2.37 omits the others


def check_context(context: bytes, target: QnnTarget) -> None:
    """Raise unless the settings in a context match its target: the compiler reports success even if it ignores an
    option."""
    settings, name = compiler_settings(context), target.soc.name
    expected = {
        "soc_type": _COMPILER_NAMES.get(name, name), "arch": str(target.htp.arch), "vtcm_size": str(target.vtcm << 20),
        "O": str(target.level), **{setting: str(flag in target.flags).lower() for flag, setting in FLAGS.items()},
    }  # fmt: skip
    for option, value in expected.items():
        reported = settings.get(option, set())
        if option == "arch":  # for some SoCs it is 68, and min_arch is the actual version
            reported = reported | settings.get("min_arch", set())
        if not reported and option not in _ALWAYS_REPORTED:
            continue
        if value not in reported:
            rule = f"must be compiled with {option} {value}"
            remedy = "This release of QNN ignores the option: use another (onnxruntime-qnn 2.7 is known to work)."
            raise VendorError(f"context for {name}", rule, value=", ".join(sorted(reported)) or "none", remedy=remedy)
