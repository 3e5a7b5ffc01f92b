"""The emulator's process: what ends it is an error here, and others go on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct

import numpy as np
import pytest

from edgewright.backends.qualcomm import emulator
from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.delegate import TRUST, QnnDelegate
from edgewright.backends.qualcomm.emulator import Emulated
from edgewright.backends.qualcomm.messages import Ended, error_fields, raise_error, receive, send
from edgewright.errors import EdgewrightError, FormatError, VendorError, VersionError
from tests.backends.qualcomm.made import SHAPE, relu_context
from tests.backends.qualcomm.test_blob import given

X = np.arange(128, dtype=np.uint8).reshape(SHAPE) * 2
WANTED = np.clip((X.astype(int) - 128) * 2, 0, 255)


def end_it() -> None:
    (process,) = emulator._RUNNING
    os.kill(process.child.pid, signal.SIGKILL)
    process.child.wait()


def test_contexts_are_loaded_anew_after_the_emulator_ended() -> None:
    first, second = (QnnDelegate(given(write_blob(relu_context()))) for _ in range(2))
    assert first.how == second.how == "SM8650 emulated by QNN 2.51"
    end_it()
    for delegate in (first, second):
        assert np.array_equal(delegate.execute([X])[0], WANTED)
        delegate.close()


def test_a_crash_is_an_error_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    if emulator._RUNNING:
        end_it()
    monkeypatch.setattr(emulator, "MODULE", "tests.backends.qualcomm.crashing")
    with pytest.raises(VendorError, match="QNN emulator: ended with -11; got last words"):
        Emulated(relu_context(), 57, "forward", 1 << 20)
    monkeypatch.undo()
    emulated = Emulated(relu_context(), 57, "forward", 1 << 20)
    assert np.array_equal(emulated.run([X])[0], WANTED)
    emulated.close()


@pytest.mark.parametrize("keep", [8, 40, 300, 5000, -1])
def test_a_truncated_context_is_refused_even_if_trusted(monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    """Whatever the library makes of it, this program goes on."""
    monkeypatch.setenv(TRUST, "1")
    with pytest.raises(EdgewrightError):
        QnnDelegate(given(write_blob(relu_context()[:keep])))
    delegate = QnnDelegate(given(write_blob(relu_context())))
    assert np.array_equal(delegate.execute([X])[0], WANTED)
    delegate.close()


@pytest.mark.parametrize("at", range(8, 4000, 399))
def test_an_altered_context_that_is_trusted_ends_nothing(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setenv(TRUST, "1")
    blob = bytearray(write_blob(relu_context()))
    blob[256 + at] ^= 0xFF
    with contextlib.suppress(FormatError, VendorError, VersionError):
        delegate = QnnDelegate(given(bytes(blob)))
        delegate.execute([X])
        delegate.close()
    intact = QnnDelegate(given(write_blob(relu_context())))
    assert np.array_equal(intact.execute([X])[0], WANTED)
    intact.close()


def test_an_older_library_is_refused_in_words() -> None:
    context = relu_context().replace(b"v2.51.0.", b"v2.99.0.")
    said = r"was built with QNN 2.99, and this library is 2.51\n  Compile with QNN 2.51 or older, or update the library"
    with pytest.raises(VersionError, match=said):
        QnnDelegate(given(write_blob(context)))


def test_errors_travel() -> None:
    for error in (VendorError("a", "must b", value=3, remedy="c"), FormatError("must d", where="e.f", value="g")):
        with pytest.raises(type(error)) as found:
            raise_error(error_fields(error))
        assert str(found.value) == str(error)
    with pytest.raises(VendorError, match="a: b"):
        raise_error({"error": "SystemExit", "subject": "a", "rule": "b"})


def test_answers_are_not_believed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(theirs, {"id": 1}, [b"abc"])
        assert receive(ours, 3) == ({"id": 1, "sizes": [3]}, [b"abc"])
        send(theirs, {}, [b"abcd"])
        with pytest.raises(VendorError, match="at most 3 bytes; got 4"):
            receive(ours, 3)
        assert ours.recv(1 << 10)
        for text, count in ((b"[]", 0), (b'{"sizes":[9]}', 1), (b'{"sizes":[-1,2]}', 1), (b"\xff", 0)):
            theirs.sendall(struct.pack("<IQ", len(text), count) + text + bytes(count))
            with pytest.raises(VendorError, match="must"):
                receive(ours, 10)
            ours.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                ours.recv(1 << 10)
            ours.setblocking(True)
    with pytest.raises(Ended):
        receive(ours, 3)
