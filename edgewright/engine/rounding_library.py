"""Rounding of float32 to integral values in LLVM IR, for processors without the instructions (FPv4 of Cortex-M4).

LLVM calls these functions of C's library by name; here they are part of the object. Numbers of 2**23 and more are
integral. The conversion ``vcvtr`` rounds ties to even in the processor's default mode.
"""

_BEYOND = "0x4160000000000000"  # 2**23

_BODY = """
define internal float @{name}(float %x) nounwind noinline {{
  %size = call float @llvm.fabs.f32(float %x)
  %fraction = fcmp olt float %size, {beyond}
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
_FLOOR = _STEPPED.format(predicate="ogt", operation="fsub")
_CEIL = _STEPPED.format(predicate="olt", operation="fadd")
_INTEGERS = {"rintf": _EVEN, "nearbyintf": _EVEN, "roundevenf": _EVEN, "truncf": _TRUNCATED, "floorf": _FLOOR,
             "ceilf": _CEIL}  # fmt: skip
_USED = ", ".join(f"ptr @{name}" for name in _INTEGERS)
ROUNDING_FUNCTIONS = (
    "declare float @llvm.fabs.f32(float)\ndeclare float @llvm.copysign.f32(float, float)\n"
    "declare float @llvm.arm.vcvtr.f32(float)\n"
    f'@llvm.compiler.used = appending global [{len(_INTEGERS)} x ptr] [{_USED}], section "llvm.metadata"\n'
    + "".join(_BODY.format(name=name, beyond=_BEYOND, integer=text) for name, text in _INTEGERS.items())
)
