"""Names of ExecuTorch's Qualcomm package that scripts import; the only backend type supported here is the HTP."""

from __future__ import annotations

import enum
import logging
from typing import Any

import torch

from edgewright.backends.qualcomm.options import KEY, read_options
from edgewright.backends.qualcomm.partitioner import reject_skip_mutable_buffer
from edgewright.backends.qualcomm.partitioner import to_edge_transform_and_lower_to_qnn as _lower
from edgewright.backends.qualcomm.quantizer import QnnQuantizer as _Quantizer
from edgewright.backends.qualcomm.schemes import QuantDtype, get_qnn_quantization_config
from edgewright.backends.qualcomm.target import QcomChipset
from edgewright.errors import UsageError
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.quantize.recipes import QuantizationConfig

log = logging.getLogger("edgewright.qualcomm")


class QnnExecuTorchBackendType(enum.IntEnum):
    """Qualcomm's backends, numbered as in files."""

    kUndefinedBackend = 0  # noqa: N815
    kGpuBackend = 1  # noqa: N815
    kHtpBackend = 2  # noqa: N815
    kDspBackend = 3  # noqa: N815
    kLpaiBackend = 4  # noqa: N815


class QnnQuantizer(_Quantizer):
    """Edgewright's quantizer with ExecuTorch's constructor. Operators that the HTP rejects always stay in floating
    point, which is ``strict``; the partitioner's report has the reason."""

    def __init__(
        self, backend: QnnExecuTorchBackendType = QnnExecuTorchBackendType.kHtpBackend,
        soc_model: Any = QcomChipset.SM8750, strict: bool = True,
    ) -> None:  # fmt: skip
        if backend != QnnExecuTorchBackendType.kHtpBackend:
            name = getattr(backend, "name", backend)
            raise UsageError("backend", "must be kHtpBackend: Edgewright compiles for the HTP", value=name)
        if not strict:
            log.warning("strict=False: operators that the HTP rejects stay in floating point here nevertheless")
        super().__init__(soc_model)

    def set_recipe(self, recipe: Any) -> None:
        """Not supported: ExecuTorch's recipes use its own annotation rules."""
        remedy = "Use set_default_quant_config, set_submodule_qconfig_list and add_discard_nodes."
        raise UsageError("set_recipe", "is not supported", value=type(recipe).__name__, remedy=remedy)


def update_spill_fill_size(exported_program: Any) -> int:
    """Size of the spill buffer that contexts share (``use_multi_contexts``), in bytes; lowering has set it already."""
    is_list = isinstance(exported_program, list | tuple)
    modules = exported_program if is_list else exported_program.graph_module.modules()
    lowered = [module for module in modules if isinstance(module, LoweredBackendModule)]
    values = [value for module in lowered for key, value in module.compile_specs if key == KEY]
    options = [read_options(value).backend_options for value in values]
    return max(
        (o.htp_options.max_sf_buf_size for o in options if o is not None and o.htp_options is not None), default=0
    )


def to_edge_transform_and_lower_to_qnn(
    module: Any, inputs: Any, compiler_specs: Any, constant_methods: Any = None, dynamic_shapes: Any = None,
    dep_table: Any = None, passes_job: Any = None, skip_node_id_set: Any = None, skip_node_op_set: Any = None,
    skip_mutable_buffer: bool = False, generate_etrecord: bool = False, convert_linear_to_conv2d: bool = False,
) -> Any:  # fmt: skip
    """Edgewright's function with ExecuTorch's arguments. Custom passes (``passes_job``) run before lowering, in their
    order; ExecuTorch's own passes do not exist here, so ``dep_table`` has nothing to order. ``generate_etrecord`` is
    not needed: ``get_etrecord`` of the program always works."""
    from edgewright.backends.qualcomm.script_helpers import active_passes
    from edgewright.backends.qualcomm.script_helpers import convert_linear_to_conv2d as convert

    reject_skip_mutable_buffer(skip_mutable_buffer)
    if dep_table:
        log.warning("dep_table is not used: the passes of passes_job run in the order they have there")
    if convert_linear_to_conv2d:
        module = convert(module)
    return _lower(
        module, inputs, compiler_specs, constant_methods, dynamic_shapes,
        skip_node_id_set=skip_node_id_set, skip_node_op_set=skip_node_op_set,
        transform_passes=active_passes(passes_job) or None,
    )  # fmt: skip


def get_ptq_per_channel_quant_config(
    act_dtype: torch.dtype = torch.uint8, weight_dtype: torch.dtype = torch.int8
) -> QuantizationConfig:
    """A scheme with weights quantized per channel."""
    scheme = _SCHEMES.get((act_dtype, weight_dtype))
    if scheme is None:
        supported = ", ".join(f"{a} and {w}" for a, w in _SCHEMES)
        raise UsageError(
            "get_ptq_per_channel_quant_config", f"takes {supported}", value=f"{act_dtype} and {weight_dtype}"
        )
    return get_qnn_quantization_config(scheme, is_per_channel=True)


_INT4: torch.dtype = vars(torch)["int4"]  # missing in torch's stubs
_SCHEMES: dict[tuple[torch.dtype, torch.dtype], QuantDtype] = {
    (torch.uint8, torch.int8): QuantDtype.use_8a8w,
    (torch.uint8, _INT4): QuantDtype.use_8a4w,
    (torch.uint16, torch.int8): QuantDtype.use_16a8w,
    (torch.uint16, _INT4): QuantDtype.use_16a4w,
}
