"""Public functions and methods take the arguments that ExecuTorch's take, by the same names.

The expected names are read from the sources in ExecuTorch's wheel. What is left out here is listed with the reason.
"""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgewright.compat.table import counterpart

B = "executorch.backends"
CLASSES = [
    f"{B}.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner",
    f"{B}.xnnpack.quantizer.xnnpack_quantizer:XNNPACKQuantizer",
    f"{B}.arm.quantizer.arm_quantizer:TOSAQuantizer",
    f"{B}.arm.quantizer.arm_quantizer:EthosUQuantizer",
    f"{B}.arm.ethosu.partitioner:EthosUPartitioner",
    f"{B}.arm.tosa.partitioner:TOSAPartitioner",
    f"{B}.arm.ethosu.compile_spec:EthosUCompileSpec",
    f"{B}.arm.common.arm_compile_spec:ArmCompileSpec",
    f"{B}.qualcomm.partition.qnn_partitioner:QnnPartitioner",
    f"{B}.qualcomm.quantizer.quantizer:QnnQuantizer",
    f"{B}.qualcomm.export_utils:SimpleADB",
    f"{B}.samsung.partition.enn_partitioner:EnnPartitioner",
    f"{B}.samsung.quantizer.quantizer:EnnQuantizer",
    f"{B}.nxp.neutron_partitioner:NeutronPartitioner",
    f"{B}.nxp.quantizer.neutron_quantizer:NeutronQuantizer",
    f"{B}.nxp.nxp_backend:NeutronCompileSpecBuilder",
]
FUNCTIONS = [
    f"{B}.xnnpack.quantizer.xnnpack_quantizer:get_symmetric_quantization_config",
    f"{B}.arm.quantizer.arm_quantizer:get_symmetric_quantization_config",
    f"{B}.arm.quantizer.arm_quantizer:get_symmetric_a8w4_quantization_config",
    f"{B}.arm.quantizer.arm_quantizer:get_symmetric_a16w8_quantization_config",
    f"{B}.arm.quantizer.arm_quantizer:get_uint8_io_quantization_config",
    f"{B}.qualcomm.utils.utils:generate_htp_compiler_spec",
    f"{B}.qualcomm.utils.utils:generate_qnn_executorch_compiler_spec",
    f"{B}.qualcomm.utils.utils:to_edge_transform_and_lower_to_qnn",
    f"{B}.qualcomm.export_utils:build_executorch_binary",
    f"{B}.qualcomm.export_utils:make_quantizer",
    f"{B}.qualcomm.export_utils:generate_inputs",
    f"{B}.samsung.utils.export_utils:quantize_module",
    f"{B}.samsung.utils.export_utils:to_edge_transform_and_lower_to_enn",
    f"{B}.nxp.nxp_backend:generate_neutron_compile_spec",
    f"{B}.nxp.quantizer.utils:calibrate_and_quantize",
]
# Classes of ExecuTorch's that are another class here.
HERE = {
    "TOSAQuantizer": f"{B}.arm.quantizer.arm_quantizer:EthosUQuantizer",
    "TOSAPartitioner": f"{B}.arm.ethosu:EthosUPartitioner",
}
PARTS = {  # methods that ExecuTorch's own code calls, or that pieces of its implementation are for
    "generate_partitions", "generate_per_op_partitions", "tag_nodes", "validate_partitioning_result",
    "transform_for_pre_decomposition", "global_config", "io_config", "module_type_config",
    "module_name_config", "tosa_spec", "pull_debug_output", "pull_heap_output",
    "get_supported_quantization_configs", "get_supported_operator_for_quantization_config", "get_supported_ops",
    "recipe", "compile_spec",
}  # fmt: skip
LEFT_OUT = {  # arguments
    ("EthosUCompileSpec", "external_block_placements"): "memory of weights outside the delegate",
    ("TOSAQuantizer", "compile_spec_or_tosa_spec"): "the class is EthosUQuantizer here",
    ("SimpleADB", "expected_input_shape"): "shapes are in the program",
    ("SimpleADB", "expected_output_shape"): "shapes are in the program",
    ("QnnPartitioner", "edge_program"): "positional: other partitioners of ExecuTorch's call it exported_program",
    ("EnnPartitioner", "edge_program"): "positional, as above",
}


def body(path: str) -> tuple[ast.Module, str]:
    module, _, name = path.partition(":")
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations)))
    return ast.parse(root.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text(encoding="utf-8")), name


def arguments(function: ast.FunctionDef) -> list[str]:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls", "_")]


def ours(path: str) -> object:
    module, _, name = HERE.get(path.partition(":")[2], path).partition(":")
    found = counterpart(module, name)
    assert found is not None, path
    return getattr(import_module(found[0]), found[1])


def missing(function: object, names: list[str], owner: str) -> set[str]:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    return {name for name in names if name not in parameters and (owner, name) not in LEFT_OUT}


@pytest.mark.parametrize("path", CLASSES)
def test_methods_take_executorchs_arguments(path: str) -> None:
    tree, name = body(path)
    (definition,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    methods = [n for n in definition.body if isinstance(n, ast.FunctionDef)]
    assert methods
    absent = {}
    for method in methods:
        if (method.name.startswith("_") and method.name != "__init__") or method.name in PARTS:
            continue
        here = getattr(ours(path), method.name, None)
        absent[method.name] = {"the method"} if here is None else missing(here, arguments(method), name)
    assert not {method: names for method, names in absent.items() if names}


@pytest.mark.parametrize("path", FUNCTIONS)
def test_functions_take_executorchs_arguments(path: str) -> None:
    tree, name = body(path)
    (definition,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    assert not missing(ours(path), arguments(definition), name)
