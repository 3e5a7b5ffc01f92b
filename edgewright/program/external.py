"""External weights: constants in data files, and weights trained on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from edgewright.errors import UsageError
from edgewright.ir.graph import Value
from edgewright.program.config import ExecutorchBackendConfig

DEFAULT_TAG = "_default_external_constant"
Tag = Callable[[Value], "str | None"]


def external_tag(config: ExecutorchBackendConfig, exported: ExportedProgram) -> Tag | None:
    """A function from a weight to its data file. Lifted constants stay in the program: they are part of the code."""
    option = config.external_constants
    nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    trained = set(trained_weights(exported)) if config.external_mutable_weights else set()
    if not option and not trained:
        return None

    def tag(value: Value) -> str | None:
        if value.qualified_name in trained:
            return DEFAULT_TAG
        if not option or value.state or value.name not in nodes or "_lifted_tensor" in value.name:
            return None
        return _check_tag(option(nodes[value.name]), value) if callable(option) else DEFAULT_TAG

    return tag


def _check_tag(tag: Any, value: Value) -> str | None:
    """Validate a tag, which becomes a file name in a user's folder and must not lead out of it."""
    if tag is None or (isinstance(tag, str) and tag and not set(tag) & set("/\\:\0") and tag.strip(".")):
        return tag
    rule = "must return the name of a data file (without folders), or None"
    raise UsageError(f"external_constants of {value.qualified_name!r}", rule, value=tag)


def trained_weights(exported: ExportedProgram) -> list[str]:
    """Weights that the program computes gradients for, in the order of the gradients."""
    specs = exported.graph_signature.output_specs
    return [str(s.target) for s in specs if s.kind == OutputKind.GRADIENT_TO_PARAMETER]


def training_methods(exported: ExportedProgram, name: str) -> dict[str, Any]:
    """Constant methods with the output indices of gradients and weights, and their names, for a trainer."""
    weights = trained_weights(exported)
    if not weights:
        return {}
    kinds = [s.kind for s in exported.graph_signature.output_specs]
    before = kinds.index(OutputKind.GRADIENT_TO_PARAMETER)
    hidden = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.TOKEN)
    returned = [k for k in kinds if k not in hidden]
    first = before - sum(k in hidden for k in kinds[:before])
    return {
        f"__et_training_gradients_index_{name}": first,
        f"__et_training_fqn_{name}": weights,
        f"__et_training_parameters_index_{name}": len(returned),
    }
