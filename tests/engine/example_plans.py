"""Plans of toy kernels: what they compute is obvious, how it is shared out is what is tested."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.engine.plan import Address, Plan, Step, TensorSpec

FLOAT = np.dtype(np.float32)
COUNT = np.dtype(np.int32)
LANES = 4  # floats in a unit

# args: x, y, c; y = x + c in units of four floats
ADD = """
define void @add(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %x = load ptr, ptr %args
  %y.at = getelementptr i8, ptr %args, i64 8
  %y = load ptr, ptr %y.at
  %c.at = getelementptr i8, ptr %args, i64 16
  %c = load float, ptr %c.at
  %one = insertelement <4 x float> poison, float %c, i32 0
  %all = shufflevector <4 x float> %one, <4 x float> poison, <4 x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%i1, %loop]
  %off = shl i64 %i, 4
  %p = getelementptr i8, ptr %x, i64 %off
  %a = load <4 x float>, ptr %p, align 4
  %b = fadd <4 x float> %a, %all
  %q = getelementptr i8, ptr %y, i64 %off
  store <4 x float> %b, ptr %q, align 4
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %end
  br i1 %more, label %loop, label %leave
leave:
  ret void
}
"""

# args: y, rounds; counts every unit it is given, after idling for a while (so that others come to take part)
TALLY = """
define void @tally(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %y = load ptr, ptr %args
  %n.at = getelementptr i8, ptr %args, i64 8
  %n = load i64, ptr %n.at
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%i1, %count]
  br label %idle
idle:
  %k = phi i64 [0, %loop], [%k1, %idle]
  store volatile i64 %k, ptr %scratch
  %k1 = add i64 %k, 1
  %again = icmp ult i64 %k1, %n
  br i1 %again, label %idle, label %count
count:
  %p = getelementptr i32, ptr %y, i64 %i
  %old = load i32, ptr %p
  %new = add i32 %old, 1
  store i32 %new, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %end
  br i1 %more, label %loop, label %leave
leave:
  ret void
}
"""
MANY = 10**9  # macs that make waking threads worth it


def adding(steps: int = 5, units: int = 32, grain: int = 4) -> Plan:
    """``y = x + steps``, through two halves of the arena in turn: wrong if a step starts too early."""
    size = units * LANES * FLOAT.itemsize
    made = []
    for k in range(steps):
        source = Address("input", 0) if k == 0 else Address("arena", k % 2 * size)
        target = Address("output", 0) if k == steps - 1 else Address("arena", (k + 1) % 2 * size)
        made.append(Step("add", (source, target, 1.0), units, grain, label=f"add {k}", macs=MANY, bytes=2 * size))
    shape = (units * LANES,)
    return plan(made, {"add": ADD}, 2 * size, [TensorSpec("x", FLOAT, shape)], [TensorSpec("y", FLOAT, shape)])


def tallying(layers: Sequence[tuple[int, int, bool]], rounds: int = 50) -> Plan:
    """Each layer of (units, grain, barrier) counts how often each of its units was done, in an output of its own."""
    made = [
        Step("tally", (Address("output", 0, k), rounds), units, grain, barrier, macs=MANY)
        for k, (units, grain, barrier) in enumerate(layers)
    ]
    return plan(made, {"tally": TALLY}, 0, [], [TensorSpec(f"t{k}", COUNT, (u,)) for k, (u, _, _) in enumerate(layers)])


def plan(
    steps: Sequence[Step],
    kernels: dict[str, str],
    arena: int,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> Plan:
    nothing = np.zeros(0, np.uint8)
    return Plan(tuple(steps), kernels, nothing, arena, 64, tuple(inputs), tuple(outputs))
