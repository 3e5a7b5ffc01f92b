"""Every public entry point of ``edgewright.runtime`` with arguments of wrong types: a typed error each time."""

from __future__ import annotations

import inspect
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgewright.runtime
from edgewright.errors import EdgewrightError, ExecutionError, FileAccessError, InputError, UsageError
from edgewright.runtime import (
    Limits,
    LoadedProgram,
    Method,
    Profile,
    Runtime,
    register_delegate,
    register_kernel,
)
from tests.support import golden

RUNTIME = Runtime.get()
LINEAR = golden.path("linear_fp32_portable")
X = next(golden.cases("linear_fp32_portable")).inputs[0]


class Pathlike:
    """Says that it is a path, and is none."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __fspath__(self) -> Any:
        return self._answer


def numbers() -> Any:
    yield 1


WRONG: dict[str, Any] = {
    "None": None, "True": True, "int": 5, "minus": -1, "huge": 1 << 200, "float": 1.5, "nan": float("nan"),
    "complex": 1j, "empty text": "", "text": "x", "folder": "/", "dot": ".", "null": "a\0b", "surrogate": "\udc80",
    "long text": "x" * 5000, "empty bytes": b"", "bytes": b"x", "bytearray": bytearray(3),
    "memoryview": memoryview(b"x"), "strided": memoryview(b"abcd")[::2], "list": [], "list of None": [None],
    "list of int": [5], "nested": [[X]], "tuple": (), "dict": {}, "dict of arrays": {"x": X}, "set": {1},
    "generator": numbers, "iterator": iter([X]), "range": range(1), "object": object(), "class": int, "function": len,
    "module": os, "array": X, "no dimensions": np.float32(1), "objects": np.array([None]), "ellipsis": ...,
    "path of bytes": Pathlike(b"/"), "path of int": Pathlike(5), "path": Path("nowhere") / "m.pte",
    "exception": ValueError("x"),
}  # fmt: skip


def program() -> LoadedProgram:
    return RUNTIME.load_program(LINEAR)


def method() -> Method:
    return program().load_method()


# What is called, and the names of values that are right for it.
CALLS: dict[str, tuple[Callable[[Any], object], set[str]]] = {
    "Runtime": (lambda v: Runtime(threads=v), {"None", "int"}),
    "Runtime.load_program": (lambda v: RUNTIME.load_program(v), set()),
    "Runtime.load_program data": (lambda v: RUNTIME.load_program(LINEAR, v), {"None", "list", "tuple"}),
    "Runtime.load_program data item": (lambda v: RUNTIME.load_program(LINEAR, [v]), set()),
    "Runtime.load_program limits": (lambda v: RUNTIME.load_program(LINEAR, limits=v), {"None"}),
    "Runtime.load_program twin": (lambda v: RUNTIME.load_program(LINEAR, twin=v),
        {"None", "bytes", "empty bytes", "bytearray", "memoryview"}),
    "LoadedProgram": (lambda v: LoadedProgram(v, {}, Limits()), set()),
    "LoadedProgram.metadata": (lambda v: program().metadata(v), set()),
    "LoadedProgram.load_method": (lambda v: program().load_method(v), set()),
    "Method": (lambda v: Method(v, v, {}, Limits()), set()),
    "Method.execute": (lambda v: method().execute(v), set()),
    "Method.execute item": (lambda v: method().execute([v]), {"array"}),
    "Method.execute number of items": (lambda v: method().execute([X, v]), set()),
    "Method.execute profile": (lambda v: method().execute([X], profile=v), {"None"}),
    "Limits memory": (lambda v: Limits(memory=v), {"int", "huge"}),
    "Limits instructions": (lambda v: Limits(instructions=v), {"int", "huge"}),
    "Profile.save_etdump": (lambda v: Profile().save_etdump(v), {"text", "surrogate"}),
    "Profile.save_chrome_trace": (lambda v: Profile().save_chrome_trace(v), {"text", "surrogate"}),
    "register_kernel": (lambda v: register_kernel(v, len), set()),
    "register_kernel fn": (lambda v: register_kernel("test::wrong.out", v), {"class", "function", "generator"}),
    "register_kernel shape": (lambda v: register_kernel("test::wrong.out", len, shape=v),
                              {"None", "class", "function", "generator"}),
    "register_delegate": (lambda v: register_delegate(v, len),
                          {"text", "dot", "folder", "null", "surrogate", "long text"}),
    "register_delegate factory": (lambda v: register_delegate("WrongBackend", v), {"function", "generator"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewright.backends import registry as backend_registry
    from edgewright.runtime import registry

    monkeypatch.setattr(registry, "_KERNELS", dict(registry.all_kernels()))
    monkeypatch.setattr(backend_registry, "_REGISTERED", dict(backend_registry._REGISTERED))


@pytest.mark.parametrize("call", CALLS)
def test_wrong_arguments_are_typed_errors(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where some values name new files
    function, right = CALLS[call]
    untyped, accepted = {}, []
    for name, value in WRONG.items():
        value = numbers() if name == "generator" and "generator" not in right else value
        try:
            function(value)
        except EdgewrightError:
            continue
        except Exception as error:
            untyped[name] = repr(error)
        else:
            accepted.append(name)
    assert untyped == {}
    assert sorted(accepted) == sorted(right)


def test_every_public_name_is_called() -> None:
    public = set()
    for name in edgewright.runtime.__all__:
        thing = getattr(edgewright.runtime, name)
        public.add(name)
        methods = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else []
        public.update(
            f"{name}.{m}" for m, f in methods if not m.startswith("_") and len(inspect.signature(f).parameters) > 1
        )
    internal = {"Profile.begin", "Profile.step", "Profile.add_graph_run"}  # methods and compiled graphs call them
    called = {name.split(" ")[0] for name in CALLS}
    delegates = {name for name in public if name.split(".")[0] in ("Delegate", "DelegateBase", "DelegateBlob")}
    assert public - called - internal - delegates == {"Profile"}  # which takes nothing; the runtime calls delegates


def test_paths_that_are_folders_or_nothing_are_named() -> None:
    for path in ("/", ".", "", Path("."), Path("/")):
        with pytest.raises(FileAccessError, match=r"cannot be opened: (Is a directory|No such file or directory)"):
            RUNTIME.load_program(path)


def test_inputs_are_a_list() -> None:
    linear = method()
    wanted = linear.execute([X])[0]
    for inputs in ((X,), deque([X])):
        assert np.array_equal(linear.execute(inputs)[0], wanted)
    with pytest.raises(InputError, match=r"takes a list of inputs; got generator\n  Write execute\(list\(inputs\)\)"):
        linear.execute(x for x in [X])
    with pytest.raises(InputError, match=r"takes a list of inputs; got int\n  Write execute\(\[x\]\)"):
        linear.execute(5)
    with pytest.raises(InputError, match="takes a list of inputs; got dict"):
        linear.execute({"x": X})


def test_masked_arrays_are_refused() -> None:
    """What a mask hides would be read as numbers."""
    with pytest.raises(InputError, match=r"must be a numpy array without a mask"):
        method().execute([np.ma.masked_array(X, X > 0)])


@pytest.mark.parametrize("name", ["linear_fp32_portable", "linear_fp32_xnnpack"])
def test_a_closed_method_does_not_run(name: str) -> None:
    case = next(golden.cases(name))
    loaded = RUNTIME.load_program(golden.path(name))
    closed = loaded.load_method()
    closed.execute(case.inputs)
    closed.close()
    closed.close()
    for call in (
        lambda: closed.execute(case.inputs),
        lambda: closed.execute(case.inputs, profile=Profile()),
        closed.reset,
    ):
        with pytest.raises(ExecutionError, match=r"must not be closed\n  Load it again"):
            call()
    assert closed.name == "forward" and closed.metadata.inputs
    assert loaded.load_method().execute(case.inputs)


@pytest.mark.parametrize("name", ["linear_fp32_portable", "misc_ops_fp32_xnnpack", "mix_portable", "cond"])
def test_instructions_of_the_file_are_counted(name: str) -> None:
    case = next(golden.cases(name))
    count = RUNTIME.load_program(golden.path(name)).metadata(case.method).instructions
    enough = RUNTIME.load_program(golden.path(name), limits=Limits(instructions=count)).load_method(case.method)
    assert enough.execute(case.inputs)
    if name != "cond":  # which jumps over some
        few = RUNTIME.load_program(golden.path(name), limits=Limits(instructions=count - 1)).load_method(case.method)
        with pytest.raises(ExecutionError, match=f"may execute at most {count - 1} instructions"):
            few.execute(case.inputs)


def test_no_instructions_are_no_limit() -> None:
    with pytest.raises(UsageError, match=r"Limits.instructions: must be a whole number, 1 or more; got 0"):
        Limits(instructions=0)


def test_torch_tensors_that_have_no_array_are_refused() -> None:
    import torch

    x, linear = torch.from_numpy(X), method()
    wanted = linear.execute([x])[0]
    negative = torch.view_as_complex(torch.stack([torch.zeros_like(x), -x], -1)).conj().imag
    assert negative.is_neg() and torch.equal(linear.execute([negative])[0], wanted)
    for tensor in (x.to_sparse(), x.to("meta")):
        with pytest.raises(
            InputError, match=r"input 0 of 'forward': must be a dense torch tensor with data; got torch\."
        ):
            linear.execute([tensor])
