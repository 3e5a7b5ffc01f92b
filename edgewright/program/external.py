"""Weights outside the program: constants in data files, and weights that are trained on the device."""

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
    """Which data file a weight goes to. Lifted constants stay: they are closer to code than to data."""
    chosen = config.external_constants
    nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    trained = set(trained_weights(exported)) if config.external_mutable_weights else set()
    if not chosen and not trained:
        return None

    def tag(value: Value) -> str | None:
        if value.qualified_name in trained:
            return DEFAULT_TAG
        if not chosen or value.state or value.name not in nodes or "_lifted_tensor" in value.name:
            return None
        return _checked(chosen(nodes[value.name]), value) if callable(chosen) else DEFAULT_TAG

    return tag


def _checked(tag: Any, value: Value) -> str | None:
    """A tag becomes the name of a file in a folder the user names: it must not lead out of it."""
    if tag is None or (isinstance(tag, str) and tag and not set(tag) & set("/\\:\0") and tag.strip(".")):
        return tag
    rule = "must give the name of a data file (without folders), or None"
    raise UsageError(f"external_constants of {value.qualified_name!r}", rule, value=tag)


def trained_weights(exported: ExportedProgram) -> list[str]:
    """Weights the program gives gradients for, in the order of the gradients."""
    specs = exported.graph_signature.output_specs
    return [str(s.target) for s in specs if s.kind == OutputKind.GRADIENT_TO_PARAMETER]


def training_methods(exported: ExportedProgram, name: str) -> dict[str, Any]:
    """Constant methods that tell a trainer which outputs are gradients and weights, and what they are called."""
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
