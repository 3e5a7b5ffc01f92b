"""Kernels that differ in constants only: which become one, and what their constants are in memory."""

from __future__ import annotations

import re

from edgewright.engine.plan import Step
from edgewright.engine.shared_kernels import share_kernels

_LINES = """declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @NAME(ptr %args, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = load <4 x float>, ptr %v1, align 1
  %v3 = fmul <4 x float> %v2, splat (float SCALE)
  %v4 = fcmp ogt <4 x float> splat (float 0xC024000000000000), %v3
  %v5 = select <4 x i1> %v4, <4 x float> splat (float SCALE), <4 x float> %v3
  %v6 = fptosi <4 x float> %v5 to <4 x i32>
  %v7 = add <4 x i32> %v6, splat (i32 ZERO)
  %v8 = extractelement <4 x i32> %v7, i32 0
  %v9 = mul i32 %v8, FACTOR
  store i32 %v9, ptr %v1, align 4
"""


def kernel(name: str, scale: str, zero: str, factor: str, lines: int = 20) -> str:
    text = _LINES.replace("NAME", name).replace("SCALE", scale).replace("ZERO", zero).replace("FACTOR", factor)
    return text + "".join(f"  %w{i} = add i32 %v9, 3\n" for i in range(lines)) + "  ret void\n}\n"


def step(name: str, macs: int = 0) -> Step:
    return Step(name, (1, 2), 1, 1, macs=macs)


def test_constants_that_differ_become_arguments() -> None:
    texts = {
        "one": kernel("one", "0x4000000000000000", "-7", "12"),
        "two": kernel("two", "0xBFF8000000000000", "100", "-12"),
    }
    kernels, calls = share_kernels([step("one"), step("two")], texts)
    assert list(kernels) == ["one"] and {call.kernel for call in calls.values()} == {"one"}
    assert calls["one"].first == 2  # behind the arguments of the step
    # 2.0 and -1.5 as float32, and integers with their signs; the scale is stored once for both of its uses
    assert calls["one"].constants == (0x40000000, -7, 12)
    assert calls["two"].constants == (-0x40400000, 100, -12)
    text = kernels["one"]
    assert len(re.findall(r"load float, ptr %shared\d+p", text)) == 1
    assert "splat (float 0xC024000000000000)" in text and "%w3 = add i32 %v9, 3" in text  # what does not differ


def test_kernels_that_must_not_or_need_not_be_shared() -> None:
    same = {name: kernel(name, "0x4000000000000000", zero, "1") for name, zero in (("one", "5"), ("two", "6"))}
    other = kernel("three", "0x4000000000000000", "5", "1").replace("fmul", "fadd")
    for texts, macs in ((same, 9), ({"one": same["one"], "three": other}, 0)):
        kernels, calls = share_kernels([step(name, macs) for name in texts], texts)
        assert kernels == texts and all(call.kernel == name for name, call in calls.items())
    # A structural constant, such as an index of a lane, is none that a register could replace.
    texts = {"one": same["one"], "two": same["one"].replace("one", "two").replace("%v7, i32 0", "%v7, i32 1")}
    assert share_kernels([step("one"), step("two")], texts)[0] == texts
    # Few instructions for many constants.
    short = {n: kernel(n, s, z, f, 0) for n, s, z, f in (("one", "0x4000000000000000", "1", "2"),
                                                        ("two", "0x4010000000000000", "3", "4"))}  # fmt: skip
    assert share_kernels([step("one"), step("two")], short)[0] == short
    # A function of the kernel's own has no access to the arguments: a convolution's epilogue, for example.
    texts = {n: kernel("part", "0x4000000000000000", z, "1").replace("define void", "define internal void")
             + kernel(n, "0x4000000000000000", "5", "1") for n, z in (("one", "5"), ("two", "6"))}  # fmt: skip
    assert share_kernels([step("one"), step("two")], texts)[0] == texts
