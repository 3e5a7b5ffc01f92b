"""Writes plans as one relocatable object file: kernels, packed weights, and a function that calls every step in order.

``int NAME_run(const NAME_inputs *, NAME_outputs *, void *arena)``: both structures are arrays of pointers. The code is
position independent, allocates nothing and has no variables; it calls at most ``EXTERNAL_SYMBOLS`` and, between plans,
the application's function for an NPU. The arena holds a plan's arena and scratch memory, then tensors between plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.engine.arithmetic_library import ARITHMETIC_FUNCTIONS, arithmetic_library
from edgewright.engine.codegen.builder import I64, PTR, Module, Reg, const
from edgewright.engine.cross_target import CrossTarget
from edgewright.engine.jit.elf import CodegenError
from edgewright.engine.object_reader import mark_float_abi, read_object
from edgewright.engine.plan import ALIGN, SLACK, Address, KernelArg, Plan, Step, TensorSpec
from edgewright.engine.rounding_library import ROUNDING_FUNCTIONS, rounding_library
from edgewright.engine.shared_kernels import KernelCall, share_kernels

OK, NULL_POINTER, MISALIGNED, INDEX_OUT_OF_RANGE, NPU_FAILED = 0, 1, 2, 3, 4  # results of NAME_run
_OPT_LEVEL = 2

# What an object may call. Other functions that LLVM calls for lack of an instruction become a part of the object.
EXTERNAL_SYMBOLS = frozenset(("memcpy", "memset"))


@dataclass(frozen=True)
class Buffer:
    """Memory of a tensor: a pointer of ``NAME_inputs`` or ``NAME_outputs`` (``position``: which one), or the arena
    (``position``: the offset)."""

    kind: str  # input, output or arena
    position: int


@dataclass(frozen=True)
class IndexGuard:
    """The elements of input ``input`` of a plan must be from ``low`` to ``high`` - 1; with both 0, not zero."""

    input: int
    low: int
    high: int


@dataclass(frozen=True)
class CpuCode:
    """A plan, and the memory of its inputs and outputs."""

    plan: Plan
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    guards: tuple[IndexGuard, ...] = ()

    @property
    def scratch_offset(self) -> int:
        return -(-(self.plan.arena_size + SLACK) // ALIGN) * ALIGN if self.plan.arena_size else 0

    @property
    def memory(self) -> int:
        """Bytes of the arena that it uses."""
        return self.scratch_offset + -(-self.plan.scratch_size // ALIGN) * ALIGN


@dataclass(frozen=True)
class NpuCall:
    """A command stream of an NPU: inputs are copied into its scratch memory and outputs from there, each a buffer, its
    offset in scratch memory, and its size."""

    commands: bytes
    weights: bytes
    memory: int  # of scratch
    inputs: tuple[tuple[Buffer, int, int], ...]
    outputs: tuple[tuple[Buffer, int, int], ...]


Section = CpuCode | NpuCall


@dataclass(frozen=True)
class ObjectFile:
    """An object file's bytes, with what its user must provide and know."""

    data: bytes
    arena_size: int
    arena_alignment: int
    code_size: int
    rodata_size: int  # weights, command streams and tables
    external: tuple[str, ...]  # symbols that it needs


def write_object(sections: Sequence[Section], target: CrossTarget, name: str, arena_size: int) -> ObjectFile:
    """Compile sections, which run one after the other, to ``NAME_run``. Plans must have been made for ``target``."""
    machine = _target_machine(target)
    kernels, calls = _share_kernels(sections)
    main = _MainModule(sections, target, name, arena_size, calls).text()
    module = _link_kernels(kernels, target, machine, main)
    if target.isa.compact:
        _optimize(module, machine)
    data: bytes
    if target.isa.arch == "arm":
        data = mark_float_abi(_emit_with_library(module, machine))
    else:
        data = machine.emit_object(module)
    about = read_object(data)
    unknown = about.undefined - EXTERNAL_SYMBOLS - {npu_hook(name)}
    if unknown:
        rule = f"may call {', '.join(sorted(EXTERNAL_SYMBOLS))} only"
        raise CodegenError("object file", rule, value=", ".join(sorted(unknown)), remedy="Please report this.")
    alignment, external = arena_alignment(target), tuple(sorted(about.undefined))
    return ObjectFile(data, arena_size, alignment, about.code_size, about.constants_size, external)


def npu_hook(name: str) -> str:
    """The function of the application that runs a command stream."""
    return f"{name}_npu_invoke"


def arena_alignment(target: CrossTarget) -> int:
    return 16 if target.isa.bytes <= 16 else ALIGN


def _target_machine(target: CrossTarget) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    kind = llvm.Target.from_triple(target.triple)
    return kind.create_target_machine(target.isa.cpu, target.isa.features, _OPT_LEVEL, "pic", "small")


def _share_kernels(sections: Sequence[Section]) -> tuple[dict[str, str], dict[str, KernelCall]]:
    """The kernels of all plans, and how each is called."""
    plans = [section.plan for section in sections if isinstance(section, CpuCode)]
    sources = {step.kernel: plan.kernels[step.kernel] for plan in plans for step in plan.steps}
    texts = {name: source if isinstance(source, str) else source() for name, source in sources.items()}
    return share_kernels([step for plan in plans for step in plan.steps], texts)


def _link_kernels(kernels: Mapping[str, str], target: CrossTarget, machine: Any, main: str) -> Any:
    """One module of the main function and all kernels, whose symbols become local."""
    import llvmlite.binding as llvm

    head = f'target triple = "{target.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(head + main)
    for text in kernels.values():
        module.link_in(llvm.parse_assembly(head + text))
    for kernel in kernels:
        function = module.get_function(kernel)
        function.linkage = "internal"
        function.add_function_attribute("noinline")
    module.verify()
    return module


def _optimize(module: Any, machine: Any) -> None:
    """Run LLVM's passes for small code: index arithmetic shrinks to 32 bits. Kernels are vectorized already."""
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _emit_with_library(module: Any, machine: Any) -> bytes:
    """Machine code, with the functions that it calls for what the processor has no instructions for."""
    import llvmlite.binding as llvm

    bitcode, names = module.as_bitcode(), frozenset[str]()  # emission changes the module
    while True:
        data: bytes = machine.emit_object(module)
        missing = read_object(data).undefined & (ROUNDING_FUNCTIONS | ARITHMETIC_FUNCTIONS)
        if not missing:
            return data
        names |= missing  # rounding calls arithmetic
        module = llvm.parse_bitcode(bitcode)
        for library in _libraries(names):
            module.link_in(_optimized(library, module, machine))


def _libraries(names: frozenset[str]) -> Iterator[str]:
    for functions, library in ((ROUNDING_FUNCTIONS, rounding_library), (ARITHMETIC_FUNCTIONS, arithmetic_library)):
        if names & functions:
            yield library(names & functions)


def _optimized(text: str, like: Any, machine: Any) -> Any:
    """A module for the target of another one."""
    import llvmlite.binding as llvm

    head = f'target triple = "{like.triple}"\ntarget datalayout = "{like.data_layout}"\n'
    module = llvm.parse_assembly(head + text)
    _optimize(module, machine)
    return module


# ------------------------------------------------------------------------------------------------------- main function


class _MainModule:
    """``NAME_run``, the weights and the command streams, as LLVM IR."""

    def __init__(
        self, sections: Sequence[Section], target: CrossTarget, name: str, arena_size: int,
        calls: Mapping[str, KernelCall],
    ) -> None:  # fmt: skip
        self.calls = calls
        self.module, self.target, self.name, self.arena_size = Module(target.isa.arch), target, name, arena_size
        params = [(PTR, "inputs"), (PTR, "outputs"), (PTR, "arena")]
        self.f = self.module.function(f"{name}_run", params, "i32", exported=True)
        self.sections, self.word = sections, f"i{8 * target.pointer_bytes}"
        self.caller_pointers: dict[Buffer, Reg] = {}

    def text(self) -> str:
        f = self.f
        steps = [step for s in self.sections if isinstance(s, CpuCode) for step in s.plan.steps]
        counts = (len(step.args) + len(self.calls[step.kernel].constants) for step in steps)
        args = f.emit(PTR, f"alloca [{max(counts, default=0) or 1} x i64], align 8")
        self._check_pointers()
        for number, section in enumerate(self.sections):
            if isinstance(section, CpuCode):
                _CpuEmitter(self, section, number).emit(args)
            else:
                self._call_npu(section, number)
        f.ret(const(OK, "i32"))
        return self.module.text()

    def constant(self, name: str, data: bytes, slack: int = 0) -> Reg:
        """A constant; of its own linker section, where the format has them."""
        text = "".join(_ESCAPED[byte] for byte in data + bytes(slack))
        section = "__TEXT,__const" if self.target.apple else f".rodata.{self.name}_{name}"
        kind = f"[{len(data) + slack} x i8]"
        self.module.declare(f'@{name} = internal constant {kind} c"{text}", section "{section}", align {ALIGN}')
        return Reg(f"@{name}", PTR)

    def fail_if(self, condition: Reg, result: int) -> None:
        self.f.return_if(condition, const(result, "i32"))

    def pointer(self, buffer: Buffer) -> Reg:
        if buffer.kind == "arena":
            return self.f.gep(self.f.arg("arena"), buffer.position)
        return self.caller_pointers[buffer]

    def _check_pointers(self) -> None:
        """The structures, the arena and every buffer must be there, and the arena must be aligned."""
        f = self.f
        memory = self.arena_size > 0
        for name in ("inputs", "outputs", *(("arena",) if memory else ())):
            self.fail_if(self._is_null(f.arg(name)), NULL_POINTER)
        if memory:
            bits = f.emit(self.word, f"ptrtoint ptr {f.arg('arena')} to {self.word}")
            self.fail_if(f.compare("ne", f.op("and", bits, arena_alignment(self.target) - 1), 0), MISALIGNED)
        for buffer in dict.fromkeys(b for s in self.sections for b in _buffers(s) if b.kind != "arena"):
            size = self.target.pointer_bytes
            pointer = f.load(PTR, f.arg(f"{buffer.kind}s"), buffer.position * size, size)
            self.fail_if(self._is_null(pointer), NULL_POINTER)
            self.caller_pointers[buffer] = pointer

    def _is_null(self, pointer: Reg) -> Reg:
        return self.f.emit("i1", f"icmp eq ptr {pointer}, null")

    def copy(self, target: Reg, source: Reg, size: int) -> None:
        """Copy between buffers, which must be apart, or may be the same one."""
        function = f"llvm.memcpy.p0.p0.{self.word}"
        self.module.declare(f"declare void @{function}(ptr, ptr, {self.word}, i1)")
        listed = f"ptr {target}, ptr {source}, {self.word} {size}, i1 false"
        self.f.if_then(
            self.f.compare("ne", target, source), lambda: self.f.emit_void(f"call void @{function}({listed})")
        )

    def _call_npu(self, call: NpuCall, number: int) -> None:
        """Copy inputs into scratch memory, call the application's function, copy outputs from there."""
        f, arena, hook = self.f, self.f.arg("arena"), npu_hook(self.name)
        for buffer, offset, size in call.inputs:
            self.copy(f.gep(arena, offset), self.pointer(buffer), size)
        commands = self.constant(f"commands{number}", call.commands)
        weights = self.constant(f"npu_weights{number}", call.weights) if call.weights else Reg("null", PTR)
        sized = [(commands, len(call.commands)), (weights, len(call.weights)), (arena, call.memory)]
        self.module.declare(f"declare i32 @{hook}({', '.join(['ptr', self.word] * 3)})")
        listed = ", ".join(f"ptr {pointer}, {self.word} {size}" for pointer, size in sized)
        result = f.emit("i32", f"call i32 @{hook}({listed})")
        self.fail_if(f.compare("ne", result, 0), NPU_FAILED)
        for buffer, offset, size in call.outputs:
            self.copy(self.pointer(buffer), f.gep(arena, offset), size)


_ESCAPED = [f"\\{byte:02X}" for byte in range(256)]


def _buffers(section: Section) -> Iterator[Buffer]:
    if isinstance(section, CpuCode):
        yield from (*section.inputs, *section.outputs)
    else:
        yield from (buffer for buffer, _, _ in (*section.inputs, *section.outputs))


class _CpuEmitter:
    """The calls of a plan's steps. Arguments are stored to an array on the stack, which kernels load them from."""

    def __init__(self, main: _MainModule, code: CpuCode, number: int) -> None:
        self.main, self.f, self.code, self.plan = main, main.f, code, code.plan
        weights = code.plan.weights
        # Vector loads may overrun the weights by SLACK bytes.
        self.weights = main.constant(f"weights{number}", weights.tobytes(), SLACK) if weights.nbytes else None

    def emit(self, args: Reg) -> None:
        f, plan = self.f, self.plan
        for guard in self.code.guards:
            self._check_indices(guard)
        if plan.checks:
            f.store(const(0, I64), f.arg("arena"), plan.arena_size - ALIGN, 8)
        for output, source in plan.updates:
            pointers = self.main.pointer(self.code.outputs[output]), self.main.pointer(self.code.inputs[source])
            self.main.copy(*pointers, plan.outputs[output].nbytes)
        scratch = f.gep(f.arg("arena"), self.code.scratch_offset)
        for step in plan.steps:
            for index, argument in enumerate(step.args):
                f.store(self._argument(step, argument), args, 8 * index, 8)
            call = self.main.calls[step.kernel]
            for index, bits in enumerate(call.constants, call.first):
                f.store(const(bits, I64), args, 8 * index, 8)
            self.main.module.declare(f"declare void @{call.kernel}(ptr, i64, i64, ptr)")
            f.emit_void(f"call void @{call.kernel}(ptr {args}, i64 0, i64 {step.units}, ptr {scratch})")
        if plan.checks:
            failed = f.load(I64, f.arg("arena"), plan.arena_size - ALIGN, 8)
            self.main.fail_if(f.compare("ne", failed, 0), INDEX_OUT_OF_RANGE)

    def _check_indices(self, guard: IndexGuard) -> None:
        """Return an error if an index that the caller passed is outside of its tensor."""
        f, spec = self.f, self.plan.inputs[guard.input]
        size, count = spec.dtype.itemsize, spec.nbytes // spec.dtype.itemsize
        start = self.main.pointer(self.code.inputs[guard.input])

        def check(at: Reg, bad: list[Reg]) -> list[Reg]:
            value = f.cast("sext", f.load(f"i{8 * size}", f.gep(start, f.mul(at, size))), I64)
            if guard.low == guard.high:
                wrong = f.compare("eq", value, 0)
            else:
                wrong = f.compare("uge", f.add(value, -guard.low), guard.high - guard.low)
            return [f.op("or", bad[0], wrong)]

        (bad,) = f.loop(count, [Reg("false", "i1")], check)
        self.main.fail_if(bad, INDEX_OUT_OF_RANGE)

    def _argument(self, step: Step, argument: KernelArg) -> Reg:
        if isinstance(argument, float):
            return const(int(np.float32(argument).view(np.uint32)), I64)
        if not isinstance(argument, Address):
            return const(int(argument), I64)
        if argument.buffer == "input":
            base, size = self._caller(self.code.inputs, self.plan.inputs, argument.index)
        elif argument.buffer == "output":
            base, size = self._caller(self.code.outputs, self.plan.outputs, argument.index)
        elif argument.buffer == "arena":
            base, size = self.f.arg("arena"), self.plan.arena_size
        elif argument.buffer == "weights" and self.weights is not None:
            base, size = self.weights, self.plan.weights.nbytes
        else:
            raise CodegenError(f"{step.label or step.kernel}: address", "must not be shared with other plans")
        if not 0 <= argument.offset <= size:
            rule = f"must lie in the {argument.buffer} of {size} bytes"
            raise CodegenError(f"{step.label or step.kernel}: address", rule, value=argument.offset)
        return self.f.gep(base, argument.offset)

    def _caller(self, buffers: Sequence[Buffer], tensors: Sequence[TensorSpec], index: int) -> tuple[Reg, int]:
        return self.main.pointer(buffers[index]), tensors[index].nbytes
