"""A child forked while other threads execute: their locks are free in it, and what they left half done is not used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

# A kernel that waits in the middle of a method while HOLD says so, and a fork while it does. The child is ended by its
# alarm if it waits for ever.
HEAD = """
import os, signal, sys, threading, time
import numpy as np
from edgewright.errors import ExecutionError
from edgewright.formats import schema
from edgewright.formats.pte_writer import write_program
from edgewright.runtime import Runtime, register_kernel
from tests.support import golden
from tests.support.build import PlanBuilder

HOLD, INSIDE = [True], threading.Event()

def wait(x):
    INSIDE.set()
    while HOLD[0]:
        time.sleep(0.001)
    return x + 1

register_kernel("test::wait.out(x: Tensor, out: Tensor!)", wait, shape=lambda x: x.shape)

def in_child(work):
    child = os.fork()
    if not child:
        signal.alarm(60)
        HOLD[0] = False
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

X = np.arange(4, dtype=np.float32)
"""
STATELESS = """
def load():
    builder = PlanBuilder()
    x, y = builder.input(np.float32, [4]), builder.tensor(np.float32, [4])
    builder.call("test::wait.out", [x, y, y])
    builder.outputs = [y]
    return Runtime().load_program(bytes(write_program(builder.program()))).load_method()
"""
STATEFUL = """
def load():
    builder = PlanBuilder()
    x, state, y = builder.input(np.float32, [4]), builder.tensor(np.float32, [4]), builder.tensor(np.float32, [4])
    alpha = builder.value(schema.Int(int_val=1))
    builder.call("aten::add.out", [state, x, alpha, state, state])
    builder.call("test::wait.out", [state, y, y])
    builder.outputs = [y]
    return Runtime().load_program(bytes(write_program(builder.program()))).load_method()
"""
BUSY = """
method = load()
thread = threading.Thread(target=method.execute, args=([X],))
thread.start()
INSIDE.wait()
"""


def python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_child_executes_a_method_that_was_executing() -> None:
    work = "lambda: np.array_equal(method.execute([X])[0], X + 1)"
    end = "HOLD[0] = False; thread.join(); print(code, np.array_equal(method.execute([X])[0], X + 1))"
    assert python(f"{STATELESS}{BUSY}code = in_child({work})\n{end}") == "0 True"


def test_a_child_may_close_and_reset_a_method_that_was_executing() -> None:
    work = "lambda: method.reset() is None and method.close() is None"
    assert python(f"{STATELESS}{BUSY}print(in_child({work})); HOLD[0] = False; thread.join()") == "0"


def test_state_that_was_half_written_is_refused_until_it_is_reset() -> None:
    work = """
def work():
    try:
        method.execute([X])
    except ExecutionError as error:
        told = str(error)
    method.reset()
    return "reset()" in told and np.array_equal(method.execute([X])[0], X + 1)
code = in_child(work)
HOLD[0] = False
thread.join()
print(code, np.array_equal(method.execute([X])[0], 2 * X + 1))
"""
    assert python(STATEFUL + BUSY + work) == "0 True"


def test_state_is_kept_if_nobody_was_executing() -> None:
    script = """
HOLD[0] = False
thread.join()
code = in_child(lambda: np.array_equal(method.execute([X])[0], 2 * X + 1))
print(code, np.array_equal(method.execute([X])[0], 2 * X + 1))
"""
    assert python(STATEFUL + BUSY + script) == "0 True"


def test_a_kernel_may_fork() -> None:
    """The forking thread is in the method itself, and goes on with it in both processes."""
    script = """
FORKED = []
def fork(x):
    if not FORKED:
        FORKED.append(os.fork())
    return x + 1
register_kernel("test::wait.out(x: Tensor, out: Tensor!)", fork, shape=lambda x: x.shape)
method = load()
first, second = method.execute([X])[0], method.execute([X])[0]
good = np.array_equal(first, X + 1) and np.array_equal(second, 2 * X + 1)
if not FORKED[0]:
    os._exit(0 if good else 1)
print(os.waitstatus_to_exitcode(os.waitpid(FORKED[0], 0)[1]), good)
"""
    assert python(STATEFUL + script) == "0 True"


@pytest.mark.parametrize("attribute", ["_lock", "_specialized._lock"])
def test_a_child_compiles_for_other_shapes_while_the_parent_does(attribute: str) -> None:
    """The locks that are held while a form for new shapes is made."""
    script = f"""
method = Runtime().load_program(golden.path("mlp_dynshape_xnnpack")).load_method()
runner = method._delegates[0]._runner
ones = lambda rows: np.ones((rows, *method.metadata.inputs[0].shape[1:]), np.float32)
method.execute([ones(2)])
with runner.{attribute}:
    print(in_child(lambda: [len(method.execute([ones(rows)])[0]) for rows in (2, 3)] == [2, 3]))
"""
    assert python(script) == "0"


def test_a_child_prints_where_its_parent_does_although_another_thread_collects() -> None:
    script = """
from edgewright.backends.capture import capture_streams
def collect():
    with capture_streams() as said:
        INSIDE.set()
        while HOLD[0]:
            time.sleep(0.001)
    SAID.append(said.text)
def work():
    os.write(1, b"child\\n")
    with capture_streams() as said:
        os.write(1, b"collected")
    return said.text == "collected"
SAID = []
thread = threading.Thread(target=collect)
thread.start()
INSIDE.wait()
code = in_child(work)
HOLD[0] = False
thread.join()
print(code, SAID)
"""
    assert python(script) == "child\n0 ['']"


@pytest.mark.parametrize("name", ["conv_relu_fp32_xnnpack", "conv_relu_fp32_portable", "conv_relu_int8_pc_xnnpack"])
def test_children_forked_at_any_moment_of_an_execution_give_the_same_outputs(name: str) -> None:
    script = f"""
case = next(golden.cases({name!r}))
method = Runtime(threads=2).load_program(golden.path({name!r})).load_method()
wanted = method.execute(case.inputs)
same = lambda: all(np.array_equal(a, b) for a, b in zip(method.execute(case.inputs), wanted, strict=True))
good = []
def loop():
    while HOLD[0]:
        good.append(same())
thread = threading.Thread(target=loop)
thread.start()
codes = [in_child(same) for _ in range(10)]
HOLD[0] = False
thread.join()
print(codes == [0] * 10, all(good))
"""
    assert python(script) == "True True"
