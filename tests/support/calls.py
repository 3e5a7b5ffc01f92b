"""Calls of any operator with arguments of the right kinds and the wrong values, the same for the same seed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import edgewright.runtime.stock_kernels  # noqa: F401  (fills the registry)
from edgewright.formats import schema
from edgewright.formats.flatbuffer import slots_of
from edgewright.formats.operator_signatures import OPERATORS, Argument, Kind
from edgewright.ir.dtypes import to_numpy
from edgewright.runtime.registry import KERNELS
from tests.support.build import PlanBuilder

_INTS = (0, 1, -1, 2, 3, 4, 7, -2, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
_SMALL = (0, 1, 1, 2, 2, 3, -1)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
_SHAPES = ((), (0,), (1,), (4,), (2, 3), (0, 3), (3, 0), (1, 2, 4), (1, 2, 4, 4), (0, 2, 4, 4), (2, 2, 3, 3),
           (1, 1, 1, 1), (2**31 - 1, 0), (0, 2**20, 2**20), (1,) * 16, (64, 64))  # fmt: skip
_TYPES = (*range(12), 15, 23, 27, 28, 29)


class HostileCall:
    """One method that calls one operator, made at random."""

    def __init__(self, key: str, seed: int) -> None:
        self.chance = random.Random(f"{key}/{seed}")
        self.builder = PlanBuilder()
        self.shape = self.chance.choice(_SHAPES)
        signature = OPERATORS[key]
        args = [self.argument(argument) for argument in signature.inputs]
        shapes = self.expected(key, args) if self.chance.random() < 0.7 else []
        results = [self.result(argument, shapes) for argument in signature.outputs]
        args += results
        if signature.num_values > len(args):
            args.append(results[0] if len(results) == 1 else self.builder.value(schema.TensorList(items=results)))
        self.builder.call(key, args)
        self.builder.outputs = [i for i in results if isinstance(self.builder.values[i], schema.Tensor)]
        self.builder.arena = max(self.builder.arena, 16)

    def program(self) -> schema.Program:
        return self.builder.program()

    def integer(self) -> int:
        return self.chance.choice(_SMALL if self.chance.random() < 0.7 else _INTS)

    def tensor(self) -> int:
        shape = self.shape if self.chance.random() < 0.6 else self.chance.choice(_SHAPES)
        kind = 6 if self.chance.random() < 0.6 else self.chance.choice(_TYPES)
        order = list(range(len(shape)))
        if self.chance.random() < 0.2:
            self.chance.shuffle(order)
        index = self.builder.tensor(np.complex128, shape, order)  # room for any type
        tensor = self.builder.values[index]
        assert isinstance(tensor, schema.Tensor)
        tensor.scalar_type = kind
        return index

    def expected(self, key: str, args: list[int]) -> list[Any]:
        """The shapes the results would have, if the operator accepts the arguments at all."""
        try:
            shapes = KERNELS[key].shape(*map(self.content, args))  # type: ignore[misc]
        except Exception:
            return []
        return list(shapes) if isinstance(shapes, list) else [shapes]

    def content(self, index: int) -> Any:
        """What the kernel will be given for a value."""
        value = self.builder.values[index]
        if isinstance(value, schema.Tensor):
            return np.zeros(value.sizes, to_numpy(value.scalar_type))
        if isinstance(value, schema.TensorList | schema.OptionalTensorList | schema.IntList):
            return [self.content(item) for item in value.items]
        return next((getattr(value, spec.name) for spec in slots_of(type(value))), None)

    def result(self, argument: Argument, shapes: list[Any]) -> int:
        if argument.kind is Kind.TENSORS:
            items = [self.result_tensor(shape) for shape in shapes[:64] or (None, None)]
            return self.builder.value(schema.TensorList(items=items))
        return self.result_tensor(shapes.pop(0) if shapes else None)

    def result_tensor(self, shape: Any) -> int:
        index = self.tensor()
        tensor = self.builder.values[index]
        assert isinstance(tensor, schema.Tensor)
        if shape is not None and len(shape) <= 16:  # what it should be, bounded only by what a file can say
            tensor.sizes = [min(max(size, 0), 2**31 - 1) for size in shape]
            tensor.dim_order = list(range(len(shape)))
            tensor.allocation_info, tensor.shape_dynamism = None, 1
            return index
        tensor.shape_dynamism = int(self.chance.random() < 0.5)
        if self.chance.random() < 0.3:  # without memory, and with room for more than there is
            tensor.allocation_info = None
            tensor.sizes = [min(size * 2**20, 2**31 - 1) for size in tensor.sizes[:2]] + list(tensor.sizes[2:])
            tensor.shape_dynamism = 1
        return index

    def argument(self, argument: Argument) -> int:
        if argument.optional and self.chance.random() < 0.4:
            return self.builder.value(schema.Null())
        if argument.kind in (Kind.TENSOR, Kind.ANY):
            return self.tensor()
        if argument.kind in (Kind.TENSORS, Kind.OPTIONAL_TENSORS):
            items = [self.tensor() for _ in range(self.chance.randrange(4))]
            made = schema.TensorList if argument.kind is Kind.TENSORS else schema.OptionalTensorList
            return self.builder.value(made(items=items))
        if argument.kind is Kind.INTS:
            return self.builder.ints([self.integer() for _ in range(self.chance.randrange(5))])
        return self.builder.value(self.plain(argument))

    def plain(self, argument: Argument) -> Any:
        number = self.chance.choice(_FLOATS)
        made = {
            Kind.FLOATS: lambda: schema.DoubleList(items=[number] * self.chance.randrange(4)),
            Kind.BOOLS: lambda: schema.BoolList(items=[True, False, True][: self.chance.randrange(4)]),
            Kind.FLOAT: lambda: schema.Double(double_val=number),
            Kind.BOOL: lambda: schema.Bool(bool_val=self.chance.random() < 0.5),
            Kind.STR: lambda: schema.String(string_val=self.chance.choice(("", "none", "floor", "trunc"))),
        }
        if argument.kind in made:
            return made[argument.kind]()
        if argument.kind is Kind.NUMBER and self.chance.random() < 0.5:
            return schema.Double(double_val=number)
        return schema.Int(int_val=self.integer())
