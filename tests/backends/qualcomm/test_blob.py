"""Blobs: what stock's runtime reads, and what is refused before Qualcomm's library sees it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from edgewright.backends.qualcomm.blob import MAGIC, read_blob, signature_of, write_blob
from edgewright.backends.qualcomm.delegate import TRUST, QnnDelegate, check_version
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.qnn.info import compiler_settings
from edgewright.backends.qualcomm.target import generate_htp_compiler_spec, generate_qnn_executorch_compiler_spec
from edgewright.errors import ExecutionError, FormatError, LimitError, VersionError
from edgewright.runtime.delegates import DelegateBlob
from tests.backends.qualcomm.contexts import SHAPE, relu_context


def given(blob: bytes, **more: int) -> DelegateBlob:
    (spec,) = generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(use_fp16=False))
    return DelegateBlob("QnnBackend", blob, {KEY: spec.value}, {}, **more)


def test_the_layout_is_stocks() -> None:
    context = relu_context()
    blob = write_blob(context)
    assert struct.unpack_from("<IqQ", blob) == (MAGIC, signature_of(context), len(context))
    assert blob[20:256] == bytes(236) and blob[256:] == context
    assert read_blob(blob).context == context and read_blob(blob).intact
    assert write_blob(context) == blob


def test_a_blob_runs_in_the_emulator() -> None:
    delegate = QnnDelegate(given(write_blob(relu_context())))
    x = np.arange(128, dtype=np.uint8).reshape(SHAPE) * 2
    (made,) = delegate.execute([x])
    assert np.array_equal(made, np.clip((x.astype(int) - 128) * 2, 0, 255))
    with pytest.raises(ExecutionError, match="takes 1 inputs; got 2"):
        delegate.execute([x, x])
    with pytest.raises(ExecutionError, match="must be uint8; got float32"):
        delegate.execute([x.astype(np.float32)])
    with pytest.raises(ExecutionError, match=r"must have the shape \[1, 4, 4, 8\]; got \[128\]"):
        delegate.execute([x.ravel()])
    delegate.close()
    with pytest.raises(ExecutionError, match="must not be closed"):
        delegate.execute([x])


@pytest.mark.parametrize("at", [300, 4000, 20000, 49000])
def test_an_altered_context_does_not_reach_the_library(at: int) -> None:
    blob = bytearray(write_blob(relu_context()))
    blob[at] ^= 0x40
    with pytest.raises(FormatError, match="must be the hash of its context"):
        QnnDelegate(given(bytes(blob)))


def test_stocks_signature_is_trusted_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = bytearray(write_blob(relu_context()))
    struct.pack_into("<q", blob, 4, 123456789)
    monkeypatch.setenv(TRUST, "1")
    delegate = QnnDelegate(given(bytes(blob)))
    assert delegate.input_count == 1
    delegate.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b[:100], "the header must lie within its 100 bytes"),
        (lambda b: b[:-1], "the context must lie within"),
        (lambda b: b + b"\0", "must end with its context"),
        (lambda b: b"\0" + b[1:], "must start with 0x5678abcd"),
        (lambda b: b[:30] + b"\1" + b[31:], "must be zero after its fields"),
        (lambda b: b[:12] + b"\xff" * 8 + b[20:], "must fit 63 bits"),
        (lambda b: b[:256] + b"\1" + b[257:], "must be a context binary"),
    ],
)
def test_bad_headers_are_refused(change, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_blob(change(write_blob(relu_context())))


def test_memory_is_limited() -> None:
    with pytest.raises(LimitError, match="may take 255 bytes; got 256"):
        QnnDelegate(given(write_blob(relu_context()), memory=255))


def test_newer_compilers_are_refused_in_words() -> None:
    check_version("v2.49.40.26", "v2.51.0.26")
    check_version("v2.51.0.1", "v2.51.0.0")
    said = r"was built with QNN 2.51, and this library is 2.37\n  Compile with QNN 2.37 or older"
    with pytest.raises(VersionError, match=said):
        check_version("v2.51.0.260929181845", "v2.37.0.250724")


def test_bytes_of_weights_are_no_settings() -> None:
    text = b"\x08OpO=3;seq_sf=tmlh;soc_type=SM8650;arch=75;num_nsps=1;vtcm_size=8388608;02reserved"
    draw = np.random.default_rng(0)
    weights = b"".join(bytes([79, 61]) + draw.integers(0, 256, 30, np.uint8).tobytes() for _ in range(5000))  # O=...
    expected = {"O": {"3"}, "soc_type": {"SM8650"}, "arch": {"75"}, "vtcm_size": {"8388608"}}
    assert compiler_settings(weights + text + weights) == expected
