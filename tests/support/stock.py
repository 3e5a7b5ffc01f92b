"""The stock ExecuTorch runtime in a process of its own: it may crash, and its outcome is data to us."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from edgewright.ir.dtypes import bfloat16
from tests.support.build import dim_order_of


class StockError(Exception):
    """Stock refused (or crashed on) what it was given."""


class StockRuntime:
    """Runs programs in stock; started once per test process and again after a crash.

    ``paths``: folders of another release and of its torch, in place of the installed ones.
    """

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._paths = [str(path) for path in paths]

    def run(self, program: bytes, method: str, inputs: Sequence[Any], data: Path | None = None) -> list[Any]:
        """Load and execute; numpy arrays and numbers in and out."""
        return self._ask(("run", program, data and str(data), method, [_pack(i) for i in inputs]))

    def run_many(self, program: bytes, method: str, calls: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Load once and execute once per list of inputs: state lives from call to call."""
        packed = [[_pack(i) for i in inputs] for inputs in calls]
        return [[_unpack(o) for o in outputs] for outputs in self._ask(("many", program, None, method, packed))]

    def run_methods(self, program: bytes, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Any]]:
        """Load once and execute methods one after another: state that they share lives from call to call."""
        packed = [(method, [_pack(i) for i in inputs]) for method, inputs in calls]
        return [[_unpack(o) for o in outputs] for outputs in self._ask(("methods in turn", program, None, "", packed))]

    def verify_bundle(self, bundle: bytes, method: str, case: int) -> list[Any]:
        """Run one test case of a bundled program and compare; raises StockError on a mismatch."""
        return self._ask(("bundle", bundle, None, method, [case]))

    def call_eagerly(self, operator: str, arguments: Sequence[Any]) -> list[Any]:
        """Call an operator of stock's libraries (``llama.custom_sdpa``); its results, then the arguments afterwards."""
        return self._ask(("eager", b"", None, operator, [_pack(a) for a in arguments]))

    def profile_events(self, dump: bytes) -> list[Any]:
        """The events stock's own tools read from an ETDump: (run, event name, instruction)."""
        return self._ask(("etdump", dump, None, "", []))

    def methods(self, program: bytes) -> list[str]:
        """The method names of a program that stock verifies and accepts."""
        return self._ask(("methods", program, None, "", []))

    def operators(self) -> list[str]:
        """The operators that the runtime has kernels for, those of its quantized library included."""
        return self._ask(("operators", b"", None, "", []))

    def version(self) -> str:
        """The release that answers."""
        (found,) = self._ask(("version", b"", None, "", []))
        return str(found)

    def close(self) -> None:
        """End the process, if one was started."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.stock"]
        root = Path(__file__).parent.parent.parent
        inherited = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join([*self._paths, *([inherited] if inherited else [])])
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                cwd=root, env={**os.environ, "PYTHONPATH": path})  # fmt: skip

    def _ask(self, request: Any) -> list[Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, request)
            ok, answer = _receive(self._process.stdout)
        except (BrokenPipeError, EOFError):
            code = self._process.wait()
            self._process = None
            raise StockError(f"stock crashed (exit code {code})") from None
        if not ok:
            raise StockError(answer)
        return [_unpack(item) for item in answer]


@cache
def stock() -> StockRuntime:
    return StockRuntime()


def _pack(value: Any) -> Any:
    """Arrays as bytes in dim order: pickling would lose the strides that tell stock their layout."""
    if not isinstance(value, np.ndarray):
        return value
    order = dim_order_of(value)
    return ("array", str(value.dtype), value.shape, order, np.ascontiguousarray(value.transpose(order)).tobytes())


def _unpack(value: Any) -> Any:
    if not (isinstance(value, tuple) and len(value) == 5 and value[0] == "array"):
        return value
    _, dtype, shape, order, data = value
    stored = np.frombuffer(data, bfloat16 if dtype == "bfloat16" else dtype).reshape([shape[d] for d in order])
    return stored.transpose(np.argsort(order)) if order else stored


def _send(pipe: Any, item: Any) -> None:
    data = pickle.dumps(item)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _receive(pipe: Any) -> Any:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(pipe.read(struct.unpack("<Q", head)[0]))


# ------------------------------------------------------------------------------------------------ the other side


def _to_torch(value: Any) -> Any:
    import torch

    array = _unpack(value)
    if not isinstance(array, np.ndarray):
        return value
    array = array.copy(order="K")
    if array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    tensor = torch.from_numpy(array)
    return tensor if array.size else tensor.new_empty(array.shape)  # numpy's strides of nothing mislead stock


def _from_torch(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    value = value.contiguous()
    if value.dtype == torch.bfloat16:
        return _pack(value.view(torch.int16).numpy().view(bfloat16))
    return _pack(value.resolve_conj().numpy())


def _answer(request: Any) -> list[Any]:
    from executorch.runtime import Runtime

    action, program, data, method, inputs = request
    if action == "bundle":
        return _verify_bundle(program, method, inputs[0])
    if action == "etdump":
        return _profile_events(program)
    if action == "eager":
        return _call_eagerly(method, inputs)
    if action == "operators":
        return sorted(Runtime.get().operator_registry.operator_names)
    if action == "version":
        return [_version()]
    loaded = Runtime.get().load_program(program, **({"data_path": data} if data else {}))  # older releases have none
    if action == "methods":
        return sorted(loaded.method_names)
    if action == "methods in turn":
        loaded_methods = {name: loaded.load_method(name) for name, _ in inputs}
        return [_execute(loaded_methods[name], one) for name, one in inputs]
    executable = loaded.load_method(method)
    if action == "many":
        return [_execute(executable, one) for one in inputs]
    return _execute(executable, inputs)


def _execute(executable: Any, inputs: Sequence[Any]) -> list[Any]:
    return [_from_torch(o) for o in executable.execute([_to_torch(i) for i in inputs])]


def _call_eagerly(operator: str, inputs: Sequence[Any]) -> list[Any]:
    import torch

    namespace, name = operator.split(".")
    arguments = [_to_torch(i) for i in inputs]
    results = getattr(getattr(torch.ops, namespace), name)(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    return [_from_torch(value) for value in (*results, *arguments)]


def _version() -> str:
    from executorch.version import __version__

    return str(__version__)


def _verify_bundle(bundle: bytes, method: str, case: int) -> list[Any]:
    from executorch.extension.pybindings import portable_lib

    module = portable_lib._load_bundled_program_from_buffer(bundle)
    return [str(module.verify_result_with_bundled_expected_output(method, case))]


def _profile_events(dump: bytes) -> list[Any]:
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    found = []
    for run in deserialize_from_etdump_flatcc(dump).run_data:
        for event in run.events:
            if event.profile_event is not None:
                found.append((run.name, event.profile_event.name, event.profile_event.instruction_id))
    return found


def _leave_out_the_exporter() -> None:
    """Make packages of ExecuTorch that load none of their modules by themselves.

    The runtime imports ``exir`` for the decorator of its warnings, and profiles are read by ``devtools``; the exporter
    that comes with both takes three seconds.
    """
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations is not None
    for name in ("exir", "devtools"):
        package = ModuleType(f"executorch.{name}")
        package.__path__ = [str(Path(folder) / name) for folder in spec.submodule_search_locations]
        sys.modules[package.__name__] = package


def _load_llama_operators() -> None:
    """Register the operators of language models; the module that does so imports torch's compiler as well."""
    import torch

    spec = find_spec("executorch.extension.llm")
    assert spec is not None and spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations))) / "custom_ops"
    torch.ops.load_library(next(folder.glob("*custom_ops_aot_lib.*")))


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests in a forked child; a crash costs a fork, not another start of torch."""
    _leave_out_the_exporter()
    import torch
    from executorch.runtime import Runtime

    torch.set_num_threads(1)
    Runtime.get()
    # Registers its operators. Releases before 1.4 find the runtime's library only once that is loaded.
    import executorch.kernels.quantized  # noqa: F401

    _load_llama_operators()
    if not hasattr(os, "fork"):  # Windows: a crash costs another start
        _answer_all(requests, answers)
        return
    child: tuple[int, BinaryIO, BinaryIO] | None = None
    while True:
        try:
            request = _receive(requests)
        except EOFError:
            return
        child = child or _fork()
        pid, to_child, from_child = child
        try:
            _send(to_child, request)
            answer = _receive(from_child)
        except (EOFError, BrokenPipeError):
            _, status = os.waitpid(pid, 0)
            answer, child = (False, f"crashed (signal {os.WTERMSIG(status)})"), None
        _send(answers, answer)


def _fork() -> tuple[int, BinaryIO, BinaryIO]:
    request_read, request_write = os.pipe()
    answer_read, answer_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(request_read)
        os.close(answer_write)
        return pid, os.fdopen(request_write, "wb"), os.fdopen(answer_read, "rb")
    os.close(request_write)
    os.close(answer_read)
    _answer_all(os.fdopen(request_read, "rb"), os.fdopen(answer_write, "wb"))
    os._exit(0)


def _answer_all(requests: BinaryIO, answers: BinaryIO) -> None:
    while True:
        try:
            request = _receive(requests)
        except EOFError:
            return
        try:
            answer: tuple[bool, Any] = (True, _answer(request))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}")
        _send(answers, answer)


if __name__ == "__main__":
    # Stock writes to standard output: keep the pipe to ourselves.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, channel)
