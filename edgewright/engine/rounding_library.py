"""Rounding to integral values in LLVM IR, for processors without the instructions: of float32 FPv4 of Cortex-M4, of
float64 those whose floating-point unit has single precision only.

LLVM calls these functions of C's library by name; here they are part of the object. Numbers of 2**23 (float32) or
2**52 (float64) and more are integral. The conversion ``vcvtr``, and the addition of 2**52 by the compiler's run-time
library, round ties to even.
"""

from __future__ import annotations

from collections.abc import Iterable

_FLOAT = """
define internal float @{name}(float %x) nounwind noinline {{
  %size = call float @llvm.fabs.f32(float %x)
  %fraction = fcmp olt float %size, 0x4160000000000000
  br i1 %fraction, label %small, label %integral
small:
{integer}
  %real = call float @llvm.copysign.f32(float %rounded, float %x)
  ret float %real
integral:
  ret float %x
}}
"""
_EVEN = """  %bits = call float @llvm.arm.vcvtr.f32(float %x)
  %whole = bitcast float %bits to i32
  %rounded = sitofp i32 %whole to float"""
_TRUNCATED = """  %whole = fptosi float %x to i32
  %rounded = sitofp i32 %whole to float"""
_STEPPED = """  %whole = fptosi float %x to i32
  %toward = sitofp i32 %whole to float
  %past = fcmp {predicate} float %toward, %x
  %next = {operation} float %toward, 1.0
  %rounded = select i1 %past, float %next, float %toward"""

_DOUBLE = """
define internal double @{name}(double %x) nounwind noinline {{
  %size = call double @llvm.fabs.f64(double %x)
  %fraction = fcmp olt double %size, 0x4330000000000000
  br i1 %fraction, label %small, label %integral
small:
  %above = fadd double %size, 0x4330000000000000
  %even = fsub double %above, 0x4330000000000000
{rounded}
  %real = call double @llvm.copysign.f64(double %rounded, double %x)
  ret double %real
integral:
  ret double %x
}}
"""
_DOUBLE_EVEN = "  %rounded = fadd double %even, 0.0"
_DOUBLE_TRUNCATED = """  %past = fcmp ogt double %even, %size
  %below = fsub double %even, 1.0
  %rounded = select i1 %past, double %below, double %even"""
_DOUBLE_STEPPED = """  %signed = call double @llvm.copysign.f64(double %even, double %x)
  %past = fcmp {predicate} double %signed, %x
  %next = {operation} double %signed, 1.0
  %rounded = select i1 %past, double %next, double %signed"""

_DOWN, _UP = ({"predicate": "ogt", "operation": "fsub"}, {"predicate": "olt", "operation": "fadd"})
_BODIES = {
    **{name: _FLOAT.format(name=name, integer=text) for name, text in (
        ("rintf", _EVEN), ("nearbyintf", _EVEN), ("roundevenf", _EVEN), ("truncf", _TRUNCATED),
        ("floorf", _STEPPED.format(**_DOWN)), ("ceilf", _STEPPED.format(**_UP)))},
    **{name: _DOUBLE.format(name=name, rounded=text) for name, text in (
        ("rint", _DOUBLE_EVEN), ("nearbyint", _DOUBLE_EVEN), ("roundeven", _DOUBLE_EVEN), ("trunc", _DOUBLE_TRUNCATED),
        ("floor", _DOUBLE_STEPPED.format(**_DOWN)), ("ceil", _DOUBLE_STEPPED.format(**_UP)))},
}  # fmt: skip
ROUNDING_FUNCTIONS = frozenset(_BODIES)
_DECLARATIONS = """
declare float @llvm.fabs.f32(float)
declare float @llvm.copysign.f32(float, float)
declare float @llvm.arm.vcvtr.f32(float)
declare double @llvm.fabs.f64(double)
declare double @llvm.copysign.f64(double, double)
"""


def rounding_library(names: Iterable[str]) -> str:
    """Definitions of some of ``ROUNDING_FUNCTIONS``. Nothing calls them before LLVM selects instructions."""
    listed = sorted(names)
    used = ", ".join(f"ptr @{name}" for name in listed)
    kept = f'@llvm.compiler.used = appending global [{len(listed)} x ptr] [{used}], section "llvm.metadata"\n'
    return _DECLARATIONS + kept + "".join(_BODIES[name] for name in listed)
