"""What ``torch.export`` cannot capture: the error names the user's line, what is wrong with it, and the rewrite."""

from __future__ import annotations

import inspect
import io
import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

from edgewright.errors import ExportError
from edgewright.frontend.export import export
from edgewright.frontend.export_advice import ADVICE

X = torch.ones(4, 4)
N = torch.tensor(3)
SIZE = Dim("n", min=2, max=8)


class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # here
            return x
        return -x


class Ternary(torch.nn.Module):
    def forward(self, x):
        n = x.max().item()
        return x * 2 if n > 3 else x  # here


class Equal(torch.nn.Module):
    def forward(self, x):
        return x if torch.equal(x, x + 1) else -x  # here


class Loop(torch.nn.Module):
    def forward(self, x):
        while x.norm() > 1:  # here
            x = x / 2
        return x


class Repeat(torch.nn.Module):
    def forward(self, x, n):
        for _ in range(int(n)):  # here
            x = x + 1
        return x


class Assertion(torch.nn.Module):
    def forward(self, x):
        assert x.min() >= 0, "must not be negative"  # here
        return x


class Number(torch.nn.Module):
    def forward(self, x):
        return x * float(x.max())  # here


class Lookup(torch.nn.Module):
    def forward(self, x, n):
        return x * [1, 2, 3][n]  # here


class DataSize(torch.nn.Module):
    def forward(self, x):
        y = x[x > 0]
        return y.view(2, -1) if y.shape[0] % 2 == 0 else y  # here


class Numpy(torch.nn.Module):
    def forward(self, x):
        return torch.from_numpy(np.sin(x.numpy()))  # here


class Address(torch.nn.Module):
    def forward(self, x):
        return x * x.data_ptr()  # here


class Writes(torch.nn.Module):
    def forward(self, x):
        torch.save(x, io.BytesIO())  # here
        return x


class Training(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        self.scale.add_(1)  # here
        return x * self.scale


class State(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(4, 4)

    def forward(self, x):  # here
        y = x + self.last
        self.last = x
        return y


class Growing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 4))

    def forward(self, x):
        self.seen = torch.cat([self.seen, x])  # here
        return x


class Add(torch.nn.Module):
    def forward(self, x, y):  # here
        return x + y


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):  # here
        return self.fc(x)


class Eights(torch.nn.Module):
    def forward(self, x):  # here
        return x * 2 if x.shape[0] % 8 == 0 else x


class Odd(torch.nn.Module):
    def forward(self, x):  # here
        return object()


class Wrong(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(5, 5)  # here


class Inner(torch.nn.Module):
    """The line is that of the inner module, not of the outer one that calls it."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.ReLU(), Branch())

    def forward(self, x):
        return self.inner(x)


FAILURES: list[tuple[type, tuple[Any, ...], Any, str, str]] = [
    (Branch, (X,), None, "branches on the contents of a tensor", "torch.cond"),
    (Ternary, (X,), None, "branches on the contents of a tensor", "torch.where"),
    (Equal, (X,), None, "branches on the contents of a tensor", "torch.cond"),
    (Loop, (X,), None, "has a loop condition that depends on the contents", "torch.while_loop"),
    (Repeat, (X, N), None, "has a trip count that depends on the contents", "fixed number of times"),
    (Assertion, (X,), None, "asserts something about the contents", "Remove the assertion"),
    (Number, (X,), None, "converts a tensor to a Python number", "x * y.max()"),
    (Lookup, (X, N), None, "contents of a tensor as a Python number", "index_select"),
    (DataSize, (X,), None, "branches on a size that depends on data", "torch.where"),
    (Numpy, (X,), None, "calls numpy on a tensor", "torch's function of the same name"),
    (Address, (X,), None, "accesses the data pointer", "custom_op"),
    (Writes, (X,), None, "calls Python that cannot be captured", "out of forward"),
    (Training, (X,), None, "modifies parameters", "register_buffer"),
    (State, (X,), None, "self.last: is a tensor that forward assigns", "register_buffer('last', ...)"),
    (Growing, (X,), None, "buffer 'seen': must keep its shape [4, 4]; got [8, 4]", "largest shape"),
    (Add, (X, X.clone()), {"x": {0: SIZE}, "y": {0: Dim("m")}}, "needs equal sizes", "Here: m = n."),
    (Linear, (X,), {"x": {1: SIZE}}, "specializes a dimension that dynamic_shapes", "Here: n = 4."),
    (Eights, (torch.ones(8, 4),), {"x": {0: Dim("n", max=64)}}, "does not support every size", "n = 8*_n."),
    (Linear, (torch.ones(16, 4),), {"x": {0: SIZE}}, "outside the range of its Dim", "between the Dim's min and max"),
    (Linear, (X,), {"z": {0: SIZE}}, "dynamic_shapes that do not match its inputs", "names of forward's arguments"),
    (Linear, (np.ones((4, 4)),), None, "of a type that cannot be exported", "torch.from_numpy"),
    (Linear, X, None, "example inputs that are not a tuple", "(x,)"),
    (Add, (X,), None, "do not match the arguments of forward", "one example for each argument"),
    (Odd, (X,), None, "returns something that is neither tensor", "Return tensors"),
    (Wrong, (X,), None, "cannot be captured: RuntimeError", "runs on these inputs without export"),
]


def here(module: type) -> str:
    """``file:line`` of the marked line of a class."""
    lines, first = inspect.getsourcelines(module)
    marked = next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))
    return f"{__file__}:{first + marked}: "


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("module", "args", "shapes", "rule", "remedy"), FAILURES, ids=lambda v: getattr(v, "__name__", "")
)
def test_failure(
    module: type, args: Any, shapes: Any, rule: str, remedy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ExportError) as caught:
        export(module(), args, None, shapes)
    message = str(caught.value)
    assert message.startswith(f"export: {here(module)}")
    assert rule in message.splitlines()[0]
    assert remedy in message.splitlines()[1]
    assert caught.value.__cause__ is not None or module in (State, Growing)
    assert capfd.readouterr().err == ""  # torch's own graphs and stacks would bury the message


@pytest.mark.parametrize("module", [Branch, Loop, Lookup, DataSize])
def test_strict_mode_names_the_line_too(module: type) -> None:
    args = (X, N) if module is Lookup else (X,)
    with pytest.raises(ExportError) as caught:
        export(module(), args, strict=True)
    assert str(caught.value).startswith(f"export: {here(module)}")


def test_the_line_of_an_inner_module() -> None:
    with pytest.raises(ExportError) as caught:
        export(Inner(), (X,))
    assert str(caught.value).startswith(f"export: {here(Branch)}")


@pytest.mark.parametrize(
    ("thing", "rule"),
    [(lambda x: x, "is not a torch.nn.Module"), (torch.jit.trace(Linear(), X), "is a TorchScript module"),
     (torch.nn.Module(), "has no forward")],
)  # fmt: skip
def test_what_is_no_model(thing: Any, rule: str) -> None:
    with pytest.raises(ExportError, match=rule):
        export(thing, (X,))


def test_a_stashed_tensor_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Stash(torch.nn.Module):
        seen = None

        def forward(self, x):
            self.seen = x * 2
            return x + 1

    with caplog.at_level(logging.WARNING, "edgewright"):
        export(Stash(), (X,))
    assert "self.seen is assigned in forward" in caplog.text


def test_several_stashed_tensors_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Stash(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = [None, None]

        def forward(self, x):
            self.seen = [x * 2, x * 3]
            return x + 1

    with caplog.at_level(logging.WARNING, "edgewright"):
        export(Stash(), (X,))
    assert [r.getMessage().split(" and ")[0] for r in caplog.records] == ["self.seen is assigned in forward"]


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_weights_of_recurrent_layers_are_no_state(kind: type, caplog: pytest.LogCaptureFixture) -> None:
    """torch lists them a second time in ``_flat_weights``, which export's own exchange of parameters fills anew."""

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = kind(4, 3, num_layers=2)
            self.seen = None

        def forward(self, x):
            y = self.inner(x)[0]
            self.seen = y * 2
            return y

    with caplog.at_level(logging.WARNING, "edgewright"):
        export(kind(4, 3).eval(), (X,))
        assert not caplog.records
        export(Layers().eval(), (X,))  # what the model itself assigns is still reported
    assert [r.getMessage().split(" and ")[0] for r in caplog.records] == ["self.seen is assigned in forward"]


def test_what_can_be_captured_is(capfd: pytest.CaptureFixture[str]) -> None:
    program = export(Add(), (X,), {"y": X}, {"x": {0: SIZE}, "y": {0: SIZE}})
    torch.testing.assert_close(program.module()(torch.ones(2, 4), y=torch.ones(2, 4)), torch.full((2, 4), 2.0))
    assert capfd.readouterr().err == ""


def test_rows_are_whole_sentences() -> None:
    for row in ADVICE:
        assert row.rule[0].islower() and not row.rule.endswith(".")
        assert row.remedy[0].isupper() and row.remedy.endswith(".")
