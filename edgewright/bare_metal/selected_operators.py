"""The operators of a method as ``selected_operators.yaml``, which ExecuTorch's selective build reads.

The file has the keys that ExecuTorch's ``gen_oplist`` writes for the same program: the operators, and for each the
types and dimension orders that it is called with, from which a build for single types is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from edgewright.errors import UsageError
from edgewright.formats import schema


def selected_operators(plan: schema.ExecutionPlan, file: str) -> str:
    """The text of the YAML file. ``file``: the name of the program, for the operators' debug information."""
    calls = kernel_keys(plan)
    for text in (file, *calls):
        if not text.isprintable() or any(c in text for c in "'\"\\"):
            raise UsageError("selected operators", "must have printable names without quotes", value=text)
    lines = ["build_features: []", "custom_classes: []", *_metadata(calls)]
    lines += ["include_all_non_op_selectives: false", "include_all_operators: false", "kernel_metadata: {}"]
    lines += ["operators:"] if calls else ["operators: {}"]
    for name in sorted(calls):
        lines += [f"  '{name}':", "    debug_info:", f"    - '{file}'", "    include_all_overloads: false"]
        lines += ["    is_root_operator: true", "    is_used_for_training: true"]
    return "\n".join(lines) + "\n"


def _metadata(calls: dict[str, set[str]]) -> Iterator[str]:
    yield "et_kernel_metadata:" if calls else "et_kernel_metadata: {}"
    for name in sorted(calls):
        yield f"  '{name}':"
        yield from (f"  - '{key}'" for key in sorted(calls[name]))


def kernel_keys(plan: schema.ExecutionPlan) -> dict[str, set[str]]:
    """The operators of a method, and the keys of the kernels that its calls look up."""
    calls: defaultdict[str, set[str]] = defaultdict(set)
    for operator in plan.operators or ():
        calls[operator.key]  # also of operators that are listed and not called
    for chain in plan.chains:
        for instruction in chain.instructions:
            if isinstance(instruction, schema.KernelCall):
                tensors = [_tensor(plan, plan.values[i]) for i in instruction.args]
                key = "|".join(_meta(t) for t in tensors if t is not None)
                calls[(plan.operators or [])[instruction.op_index].key].add(f"v1/{key}" if key else "v1")
    return dict(calls)


def _tensor(plan: schema.ExecutionPlan, value: schema.Value) -> schema.Tensor | None:
    """The tensor that stands for an argument: itself, or the first of a list; None for other arguments."""
    if isinstance(value, schema.TensorList | schema.OptionalTensorList):
        tensors = [plan.values[i] for i in value.items if i >= 0]
        value = tensors[0] if tensors else schema.Null()
    return value if isinstance(value, schema.Tensor) else None


def _meta(tensor: schema.Tensor) -> str:
    return f"{tensor.scalar_type};{','.join(map(str, tensor.dim_order))}"
