"""Textual listing of a method's values and instructions, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewright.formats import schema
from edgewright.formats.operator_signatures import OPERATORS, Kind, Signature
from edgewright.ir.dtypes import ScalarType

_MAX_ITEMS = 8  # list items to print: calls may share one long list
_TENSORS = (Kind.TENSOR, Kind.TENSORS, Kind.OPTIONAL_TENSORS, Kind.ANY)


class Listing:
    """Formats one verified plan."""

    def __init__(self, plan: schema.ExecutionPlan) -> None:
        self.plan = plan
        self.computed = _computed_values(plan)

    def values(self) -> list[str]:
        """Every value: ``%7 float32[2, 3] at arena 1 + 48``."""
        edges = {index: f"  <- in{n}" for n, index in enumerate(self.plan.inputs)}
        for n, index in enumerate(self.plan.outputs):
            edges[index] = edges.get(index, "") + f"  -> out{n}"
        return [f"%{i} {self._value(v)}{edges.get(i, '')}" for i, v in enumerate(self.plan.values)]

    def instructions(self) -> list[dict[str, Any]]:
        """Every instruction: chain, index, text and, if the file has it, its source line."""
        return [
            {"chain": c, "index": i, "text": self._instruction(instruction), "source": _source(chain, i)}
            for c, chain in enumerate(self.plan.chains)
            for i, instruction in enumerate(chain.instructions)
        ]

    # -------------------------------------------------------------------------------------------------- values

    def _value(self, value: schema.Value) -> str:
        if isinstance(value, schema.Tensor):
            return _tensor(value)
        if isinstance(value, schema.IntList):
            return f"ints {self._literal(value)}"
        if isinstance(value, schema.TensorList | schema.OptionalTensorList):
            return f"tensors {self._literal(value)}"
        return f"{type(value).__name__.lower()} {self._literal(value)}".removesuffix(" null")

    def _literal(self, value: schema.Value) -> str:
        if isinstance(value, schema.IntList):
            return _list(value.items, self._item)
        if isinstance(value, schema.TensorList | schema.OptionalTensorList):
            return _list(value.items, lambda i: "null" if i < 0 else f"%{i}")
        if isinstance(value, schema.DoubleList | schema.BoolList):
            return _list(value.items, _number)
        content = schema.scalar(value)
        if isinstance(content, str):
            return repr(content)
        return "null" if content is None else _number(content)

    def _item(self, index: int) -> str:
        value = self.plan.values[index]
        return str(value.int_val) if isinstance(value, schema.Int) and index not in self.computed else f"%{index}"

    def _argument(self, index: int) -> str:
        value = self.plan.values[index]
        if index in self.computed or isinstance(value, schema.Tensor):
            return f"%{index}"
        return self._literal(value)

    # -------------------------------------------------------------------------------------------- instructions

    def _instruction(self, instruction: schema.InstructionType) -> str:
        if isinstance(instruction, schema.KernelCall):
            key = (self.plan.operators or [])[instruction.op_index].key
            return self._call(key, OPERATORS.get(key), instruction.args)
        if isinstance(instruction, schema.DelegateCall):
            arguments = ", ".join(f"%{i}" for i in instruction.args)
            return f"{self.plan.delegates[instruction.delegate_index].id}[{instruction.delegate_index}]({arguments})"
        if isinstance(instruction, schema.MoveCall):
            return f"%{instruction.move_to} = %{instruction.move_from}"
        if isinstance(instruction, schema.JumpFalseCall):
            return f"if not %{instruction.cond_value_index} goto {instruction.destination_instruction}"
        return f"free %{instruction.value_index}"

    def _call(self, key: str, signature: Signature | None, args: Sequence[int]) -> str:
        if signature is None or len(args) != signature.num_values:
            inputs = ", ".join(map(self._argument, args[:-1]))
            return f"{self._names(args[-1:])}{key}({inputs})"
        arguments = []
        for index, argument in zip(args, signature.inputs, strict=False):
            text = self._argument(index)
            arguments.append(text if argument.kind in _TENSORS and text != "null" else f"{argument.name}={text}")
        outputs = args[len(signature.inputs) : len(signature.args)] or args[-1:]
        return f"{self._names(outputs)}{key}({', '.join(arguments)})"

    def _names(self, outputs: Sequence[int]) -> str:
        lists = (schema.TensorList, schema.OptionalTensorList)
        names = [self._literal(v) if isinstance(v := self.plan.values[i], lists) else f"%{i}" for i in outputs]
        return ", ".join(names) + " = " if names else ""


def _computed_values(plan: schema.ExecutionPlan) -> set[int]:
    """Values that instructions write: their content in the file is a placeholder."""
    indices: set[int] = set()
    for chain in plan.chains:
        for instruction in chain.instructions:
            if isinstance(instruction, schema.MoveCall):
                indices.add(instruction.move_to)
            elif isinstance(instruction, schema.KernelCall) and instruction.args:
                signature = OPERATORS.get((plan.operators or [])[instruction.op_index].key)
                if signature is not None and not any(a.is_write for a in signature.args):
                    indices.add(instruction.args[-1])
    return indices


def _source(chain: schema.Chain, index: int) -> str | None:
    frames = (chain.stacktrace[index].items if chain.stacktrace else None) or []
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _list(items: Sequence[Any], format_item: Any) -> str:
    suffix = f", ... {len(items)} in all" if len(items) > _MAX_ITEMS else ""
    return "[" + ", ".join(format_item(item) for item in list(items[:_MAX_ITEMS])) + suffix + "]"


def _number(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _tensor(tensor: schema.Tensor) -> str:
    dynamic = tensor.shape_dynamism != schema.Dynamism.STATIC
    sizes = ", ".join(f"<={n}" if dynamic else str(n) for n in tensor.sizes)
    text = f"{ScalarType(tensor.scalar_type).name.lower()}[{sizes}]"
    if list(tensor.dim_order) != sorted(tensor.dim_order):
        text += f" order {list(tensor.dim_order)}"
    if tensor.allocation_info is not None:
        text += f" at arena {tensor.allocation_info.memory_id} + {tensor.allocation_info.offset}"
    name = tensor.extra_tensor_info.fully_qualified_name if tensor.extra_tensor_info else None
    if tensor.external:
        return f"{text} external {name!r}"
    if tensor.data_buffer_idx:
        text += f" {'constant' if tensor.allocation_info is None else 'starts as data'} {tensor.data_buffer_idx}"
    return f"{text} {name!r}" if name else text
