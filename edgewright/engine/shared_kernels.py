"""Kernels that differ in constants only, as one kernel that loads them from its arguments.

A quantized recurrent network has the same operators in every step, each with scales of its own. Scales are constants of
a kernel, so that every step would have its own code. In an object file, such kernels become one: constants that differ
are loaded at its start, from behind the arguments of the step that calls it. What it computes is the same.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgewright.engine.plan import Step

# Storing a constant takes as much code as a few instructions of a kernel: fewer for each of them repay no sharing.
_LINES_PER_CONSTANT = 6

_DEFINITION = re.compile(r"^define ", re.MULTILINE)
_NUMBER = r"-?\d+(?:\.\d+e[+-]\d+)?|0x[0-9A-Fa-f]+"
_SPLAT = re.compile(rf"splat \((?P<type>float|double|i8|i16|i32|i64) (?P<value>{_NUMBER})\)")
_VECTOR = re.compile(r"<(\d+) x (float|double|i8|i16|i32|i64)>")
# Instructions on scalars whose operands need not be constants; sizes, indices and masks of others must be.
_SCALAR_LINE = re.compile(
    r"  %\w+ = (?:f?(?:add|sub|mul)|[sf]?div|shl|[al]shr|and|or|xor|[if]cmp \w+|select|"
    r"call \S+ @llvm\.(?:fma|[su]m(?:ax|in)|(?:max|min)num)\.)"
)
_SCALAR = re.compile(rf"(?:[ (](?P<type>float|i32) |, )(?P<value>{_NUMBER})(?=[,)]|$)")


@dataclass(frozen=True)
class KernelCall:
    """The kernel that stands for another one, and its constants (as 64 bits each) from argument ``first`` on."""

    kernel: str
    first: int = 0
    constants: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Constant:
    """An operand in a kernel's text that could be a register: its range, type (of a vector's elements), and bits."""

    start: int
    end: int
    lanes: int  # 0: a scalar
    type: str
    bits: int


def share_kernels(steps: Sequence[Step], texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, KernelCall]]:
    """The kernels that are needed, and how each kernel of ``texts`` is called. Kernels of products keep their
    constants, which their inner loops may use as immediates; so do those with functions of their own, which cannot see
    the arguments."""
    kernels, calls = dict(texts), {name: KernelCall(name) for name in texts}
    products = {step.kernel for step in steps if step.macs}
    arguments: dict[str, int] = defaultdict(int)
    for step in steps:
        arguments[step.kernel] = max(arguments[step.kernel], len(step.args))
    groups: dict[tuple[int, str], dict[str, list[_Constant]]] = defaultdict(dict)
    for name, text in texts.items():
        if name not in products and len(_DEFINITION.findall(text)) == 1:
            found = _constants(text)
            groups[arguments[name], _skeleton(name, text, found)][name] = found
    for (first, _), group in groups.items():
        shared = _share(group, texts, first) if len(group) > 1 else None
        if shared is None:
            continue
        name, text, constants = shared
        for member, values in constants.items():
            del kernels[member]
            calls[member] = KernelCall(name, first, values)
        kernels[name] = text
    return kernels, calls


def _constants(text: str) -> list[_Constant]:
    return sorted((*_splats(text), *_scalars(text)), key=lambda constant: constant.start)


def _splats(text: str) -> Iterator[_Constant]:
    for match in _SPLAT.finditer(text):
        line = text.rfind("\n", 0, match.start()) + 1
        vectors = [found for found in _VECTOR.finditer(text, line, match.start()) if found[2] == match["type"]]
        if vectors:
            bits = _bits(match["type"], match["value"])
            yield _Constant(match.start(), match.end(), int(vectors[-1][1]), match["type"], bits)


def _scalars(text: str) -> Iterator[_Constant]:
    at = 0
    for line in text.splitlines(keepends=True):
        head = _SCALAR_LINE.match(line)
        if head is not None and "<" not in line:
            for match in _SCALAR.finditer(line.rstrip("\n"), head.end()):
                kind = match["type"] or _operand_type(line)
                if kind is not None:
                    yield _Constant(at + match.start("value"), at + match.end("value"), 0, kind,
                                    _bits(kind, match["value"]))  # fmt: skip
        at += len(line)


def _operand_type(line: str) -> str | None:
    """The type of both operands, of an instruction that states it once; None if that is no type of constants here."""
    match = re.match(r"  %\w+ = (?:[a-z]+|[if]cmp \w+) (float|i32) ", line)
    return match[1] if match and " call " not in line and " select " not in line else None


def _bits(kind: str, value: str) -> int:
    """A constant in LLVM's notation as the bits that are stored in memory, as a signed number."""
    if kind not in ("float", "double"):
        return int(value)
    hexadecimal = value.startswith("0x")
    number = struct.unpack("<d", struct.pack("<Q", int(value, 16)))[0] if hexadecimal else float(value)
    return int.from_bytes(struct.pack("<f" if kind == "float" else "<d", number), "little", signed=True)


def _skeleton(name: str, text: str, constants: Iterable[_Constant]) -> str:
    """The text without its name and constants."""
    parts, at = [], 0
    for constant in constants:
        parts += [text[at : constant.start], f"[{constant.lanes} {constant.type}]"]
        at = constant.end
    return "".join((*parts, text[at:])).replace(name, "")


def _share(
    group: Mapping[str, Sequence[_Constant]], texts: Mapping[str, str], first: int
) -> tuple[str, str, dict[str, tuple[int, ...]]] | None:
    """One kernel for a group: its name, its text and the constants of each member; None if it would save nothing."""
    name = next(iter(group))
    registers: dict[tuple[int, str, tuple[int, ...]], str] = {}
    parts, at = list[str](), 0
    for constant, *others in zip(*group.values(), strict=True):
        values = (constant.bits, *(other.bits for other in others))
        if len(set(values)) > 1:
            key = (constant.lanes, constant.type, values)
            parts += [texts[name][at : constant.start], registers.setdefault(key, f"%shared{len(registers)}")]
            at = constant.end
    text = "".join((*parts, texts[name][at:]))
    slots = list(dict.fromkeys((kind, values) for _, kind, values in registers))
    if text.count("\n") < _LINES_PER_CONSTANT * len(slots):
        return None
    loads = "".join(
        _load(register, first + slots.index((kind, values)), lanes, kind)
        for (lanes, kind, values), register in registers.items()
    )
    head, entry, body = text.partition("\nentry:\n")
    constants = {member: tuple(values[at] for _, values in slots) for at, member in enumerate(group)}
    return name, f"{head}{entry}{loads}{body}", constants


def _load(register: str, index: int, lanes: int, kind: str) -> str:
    """Instructions that load a constant, and fill a vector with it."""
    single = f"{register}s" if lanes else register
    text = (
        f"  {register}p = getelementptr i8, ptr %args, i64 {8 * index}\n"
        f"  {single} = load {kind}, ptr {register}p, align 8\n"
    )
    if not lanes:
        return text
    vector = f"<{lanes} x {kind}>"
    return (
        f"{text}  {register}v = insertelement {vector} poison, {kind} {single}, i64 0\n"
        f"  {register} = shufflevector {vector} {register}v, {vector} poison, <{lanes} x i32> zeroinitializer\n"
    )
