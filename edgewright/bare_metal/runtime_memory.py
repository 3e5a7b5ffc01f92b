"""Memory that ExecuTorch's runtime takes from its allocators to load and execute a method, to the byte.

The runtime places its structures one after the other in the method allocator's pool, in the order of the program's
tables, each at its own alignment; this module does the same with their sizes. The sizes of ``ABIS`` are those of
ExecuTorch 1.5's headers under GCC: ``tests/interop/test_stock_memory.py`` compiles the headers for both, and compares
the totals with the allocators of the runtime itself (64 bits), over programs of every operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.formats import schema
from edgewright.formats.checked_int import align
from edgewright.runtime.device_memory import DeviceMemory

POOL_ALIGNMENT = 16  # of the pools that firmware provides


@dataclass(frozen=True)
class Struct:
    """Size and alignment of a structure."""

    size: int
    align: int


@dataclass(frozen=True)
class Abi:
    """ExecuTorch's structures on a machine. Names as in its sources, ``word`` is a pointer."""

    word: int
    evalue: Struct
    tensor_impl: Struct
    optional_tensor: Struct
    boxed_list: Struct  # BoxedEvalueList of any type
    array_ref: Struct
    compile_spec: Struct
    backend_delegate: Struct
    chain: Struct
    arguments: Struct  # Span<EValue*>
    tensor_meta: Struct

    @property
    def pointer(self) -> Struct:
        return Struct(self.word, self.word)


ABIS = {
    32: Abi(
        word=4, evalue=Struct(16, 8), tensor_impl=Struct(32, 4), optional_tensor=Struct(8, 4), boxed_list=Struct(12, 4),
        array_ref=Struct(8, 4), compile_spec=Struct(12, 4), backend_delegate=Struct(40, 8), chain=Struct(16, 4),
        arguments=Struct(8, 4), tensor_meta=Struct(12, 4),
    ),
    64: Abi(
        word=8, evalue=Struct(16, 8), tensor_impl=Struct(64, 8), optional_tensor=Struct(16, 8),
        boxed_list=Struct(24, 8), array_ref=Struct(16, 8), compile_spec=Struct(24, 8), backend_delegate=Struct(56, 8),
        chain=Struct(32, 8), arguments=Struct(16, 8), tensor_meta=Struct(24, 8),
    ),
}  # fmt: skip
_INT64 = Struct(8, 8)
_INT32 = Struct(4, 4)
_BYTE = Struct(1, 1)
_MAX_RANK = 16  # of tensors in ExecuTorch
_TOPK_ENTRY = 16  # bytes of a value with its index, that aten::topk sorts


class Pool:
    """A bump allocator: only counts."""

    def __init__(self) -> None:
        self.used = 0

    def take(self, struct: Struct, count: int = 1) -> None:
        """Place ``count`` structures; also none of them moves the end to their alignment."""
        self.used = align(self.used, struct.align) + struct.size * count


def method_allocator_bytes(plan: schema.ExecutionPlan, abi: Abi, delegates: Sequence[DeviceMemory]) -> int:
    """Bytes of the method allocator after a method was loaded. Exact but for the handles of ``delegates``, which are
    counted with their upper bound."""
    pool = Pool()
    pool.take(abi.evalue, len(plan.values))
    if plan.inputs:
        pool.take(_BYTE, len(plan.inputs))
    for value in plan.values:
        _take_value(pool, value, abi)
    pool.take(abi.backend_delegate, len(plan.delegates))
    for delegate, memory in zip(plan.delegates, delegates, strict=True):
        pool.take(abi.compile_spec, len(delegate.compile_specs or ()))
        pool.take(abi.pointer, memory.handle_words)
    pool.take(abi.chain, len(plan.chains))
    for chain in plan.chains:
        pool.take(abi.pointer, len(chain.instructions))
        pool.take(abi.arguments, len(chain.instructions))
        for instruction in chain.instructions:
            if isinstance(instruction, schema.KernelCall | schema.DelegateCall):
                pool.take(abi.pointer, len(instruction.args))
    return pool.used


def _take_value(pool: Pool, value: schema.Value, abi: Abi) -> None:
    if isinstance(value, schema.Tensor):
        if value.shape_dynamism != schema.Dynamism.STATIC:
            pool.take(_INT32, len(value.sizes))
            pool.take(_BYTE, len(value.sizes))
        pool.take(_INT32, len(value.sizes))  # strides
        pool.take(abi.tensor_impl)
    elif isinstance(value, schema.IntList):
        pool.take(abi.pointer, len(value.items))
        pool.take(_INT64, len(value.items))
        pool.take(abi.boxed_list)
    elif isinstance(value, schema.TensorList):
        pool.take(abi.pointer, len(value.items))  # Tensor is a pointer to its TensorImpl
        pool.take(abi.pointer, len(value.items))
        pool.take(abi.boxed_list)
    elif isinstance(value, schema.OptionalTensorList):
        pool.take(abi.pointer, len(value.items))
        pool.take(abi.optional_tensor, len(value.items))
        pool.take(abi.boxed_list)
    elif isinstance(value, schema.BoolList | schema.DoubleList | schema.String):
        pool.take(abi.array_ref)


def temp_allocator_bytes(plan: schema.ExecutionPlan, abi: Abi, delegates: Sequence[DeviceMemory]) -> int:
    """Bytes of the temp allocator, which is emptied after each instruction: the largest need of one, at load or
    execution. Of stock's kernels, only ``topk`` takes memory from it."""
    needs = [0]
    for chain in plan.chains:
        for instruction in chain.instructions:
            if isinstance(instruction, schema.KernelCall):
                needs += [_tensor_metas(instruction, abi), kernel_temp_bytes(plan, instruction)]
            elif isinstance(instruction, schema.DelegateCall):
                needs.append(delegates[instruction.delegate_index].scratch)
    return max(needs)


def _tensor_metas(call: schema.KernelCall, abi: Abi) -> int:
    """The description of its arguments by which a kernel is looked up when the method is loaded. The runtime first asks
    for room for arguments of the highest rank, and uses the method allocator instead if there is none."""
    return (abi.tensor_meta.size + _MAX_RANK) * len(call.args)


def kernel_temp_bytes(plan: schema.ExecutionPlan, call: schema.KernelCall) -> int:
    """What a kernel takes from the temp allocator while it runs."""
    if (plan.operators or [])[call.op_index].key != "aten::topk.values":
        return 0
    tensor, dim = plan.values[call.args[0]], schema.scalar(plan.values[call.args[2]])
    assert isinstance(tensor, schema.Tensor) and isinstance(dim, int)
    return _TOPK_ENTRY * (tensor.sizes[dim] if tensor.sizes else 1)
