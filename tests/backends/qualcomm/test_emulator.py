"""The emulator's process: what ends it is an error here, and others go on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from edgewright.backends.qualcomm import emulator_process
from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.delegate import TRUST, QnnDelegate
from edgewright.backends.qualcomm.emulator import EmulatedContext, _tensor_descs
from edgewright.backends.qualcomm.emulator_process import POOL, TIMEOUT
from edgewright.backends.qualcomm.messages import PeerClosed, error_fields, raise_error, receive, send
from edgewright.errors import EdgewrightError, FormatError, UsageError, VendorError, VersionError
from tests.backends.qualcomm.contexts import SHAPE, relu_context
from tests.backends.qualcomm.test_blob import given

X = np.arange(128, dtype=np.uint8).reshape(SHAPE) * 2
WANTED = np.clip((X.astype(int) - 128) * 2, 0, 255)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Has new processes run a module of the tests; none that runs it is left behind."""
    POOL.stop()
    yield lambda name: monkeypatch.setattr(emulator_process, "MODULE", f"tests.backends.qualcomm.{name}")
    POOL.stop()


def end_it() -> None:
    (process,) = [p for p in POOL.running if p.usable]
    os.kill(process.child.pid, signal.SIGKILL)
    process.child.wait()


def test_contexts_are_loaded_anew_after_the_emulator_ended() -> None:
    first, second = (QnnDelegate(given(write_blob(relu_context()))) for _ in range(2))
    assert first.how == second.how == "SM8650 emulated by QNN 2.51"
    end_it()
    for delegate in (first, second):
        assert np.array_equal(delegate.execute([X])[0], WANTED)
        delegate.close()


def test_a_crash_is_an_error_with_its_last_words(stand_in, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("crashing")
    with pytest.raises(VendorError, match="QNN emulator: ended with -11; got last words"):
        EmulatedContext(relu_context(), 57, "forward", 1 << 20)
    monkeypatch.undo()
    emulated = EmulatedContext(relu_context(), 57, "forward", 1 << 20)
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
        infinite = (b'{"sizes":[1e999]}', 0)
        for text, count in ((b"[]", 0), infinite, (b'{"sizes":[9]}', 1), (b'{"sizes":[-1,2]}', 1), (b"\xff", 0)):
            theirs.sendall(struct.pack("<IQ", len(text), count) + text + bytes(count))
            with pytest.raises(VendorError, match="must"):
                receive(ours, 10)
            ours.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                ours.recv(1 << 10)
            ours.setblocking(True)
    with pytest.raises(PeerClosed):
        receive(ours, 3)


# ------------------------------------------------------------------------------------------ answers that never come


@pytest.mark.parametrize("method", ["hang at open", "hang at run"])
def test_an_emulator_that_does_not_answer_is_killed_with_an_error(
    stand_in, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    stand_in("hanging")

    def use() -> None:
        monkeypatch.setenv(TIMEOUT, "0.5" if method == "hang at open" else "60")
        emulated = EmulatedContext(b"", 57, method, 1 << 20)
        monkeypatch.setenv(TIMEOUT, "0.5")
        emulated.run([])

    said = r"QNN emulator: must answer within 0.5 s; it was killed\n  Raise EDGEWRIGHT_QNN_TIMEOUT, in seconds; EDGE"
    with pytest.raises(VendorError, match=said):
        use()
    assert not any(p.usable for p in POOL.running)
    monkeypatch.undo()
    again = EmulatedContext(relu_context(), 57, "forward", 1 << 20)
    assert np.array_equal(again.run([X])[0], WANTED)
    again.close()


def test_a_context_that_never_ends_does_not_hold_up_those_of_other_threads(
    stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("hanging")
    stuck, errors = EmulatedContext(b"", 57, "hang at run", 1 << 20), []

    def wait() -> None:
        with pytest.raises(VendorError, match="ended with -9"):
            stuck.run([])
        errors.append("ended")

    thread = threading.Thread(target=wait)
    thread.start()
    while not stuck._process.lock.locked():
        pass
    monkeypatch.undo()
    other = EmulatedContext(relu_context(), 57, "forward", 1 << 20)
    assert np.array_equal(other.run([X])[0], WANTED) and not errors
    stuck._process.child.kill()
    thread.join()
    assert errors == ["ended"]
    other.close()


def test_contexts_of_one_thread_share_a_process_and_spare_ones_are_ended(stand_in) -> None:
    stand_in("hanging")
    first, second = (EmulatedContext(b"", 57, "quick", 1 << 20) for _ in range(2))
    assert first._process is second._process
    with first._process.lock:
        third = EmulatedContext(b"", 57, "quick", 1 << 20)
    assert third._process is not first._process and third.run([]) == []
    spare = third._process
    third.close()
    assert not spare.usable and first._process.usable
    first.close()
    second.close()
    assert [p.usable for p in POOL.running] == [True]


def test_as_many_processes_as_may_be_and_then_threads_wait(stand_in, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("hanging")
    monkeypatch.setattr(emulator_process, "_MAX_PROCESSES", 1)
    first, made = EmulatedContext(b"", 57, "quick", 1 << 20), []
    thread = threading.Thread(target=lambda: made.append(EmulatedContext(b"", 57, "quick", 1 << 20)))
    process = first._process
    with process.lock:
        thread.start()
        thread.join(0.2)
        assert made == [] and thread.is_alive()
        process.stop()  # what it waits for is killed: it gets another
    thread.join()
    assert made[0]._process is not process and made[0].run([]) == []


def test_a_forked_child_has_a_process_of_its_own(stand_in) -> None:
    stand_in("hanging")
    emulated = EmulatedContext(b"", 57, "quick", 1 << 20)
    POOL.lock.acquire()
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if emulated.run([]) == [] and emulated._process.owner == os.getpid() else 1)
    POOL.lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert emulated.run([]) == [] and emulated._process.usable
    emulated.close()


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "inf", "1e300"])
def test_a_timeout_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(TIMEOUT, text)
    with pytest.raises(UsageError, match=f"{TIMEOUT}: must be a number of seconds above 0; got {text}"):
        emulator_process.timeout()


UNLISTED = [None, [1], [["x", [1]]], [["x", 1, "uint8"]], [["x", [1], "squeak"]], [["x", [0], "u1"]]]


@pytest.mark.parametrize("listed", UNLISTED, ids=str)
def test_ends_are_not_believed(listed: object) -> None:
    with pytest.raises((VendorError, FormatError), match="must"):
        _tensor_descs(listed)
