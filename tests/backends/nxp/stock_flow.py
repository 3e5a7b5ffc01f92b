"""Lowers models with stock ExecuTorch and writes the delegates' blobs: python stock_flow.py FOLDER, with the stand-in
on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from executorch.backends.nxp.backend.neutron_target_spec import NeutronTargetSpec
from executorch.backends.nxp.edge_passes.neutron_edge_pass_manager import NeutronEdgePassManager
from executorch.backends.nxp.neutron_partitioner import NeutronPartitioner
from executorch.backends.nxp.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from executorch.backends.nxp.quantizer.neutron_quantizer import NeutronQuantizer
from executorch.backends.nxp.quantizer.utils import calibrate_and_quantize
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

from tests.backends.nxp.stock_models import MODELS


def main(folder: Path) -> None:
    for name, (kind, shapes, options) in MODELS.items():
        torch.manual_seed(0)
        inputs = tuple(torch.randn(s) for s in shapes)
        exported = torch.export.export(kind().eval(), inputs, strict=True)
        target = NeutronTargetSpec("imxrt700")
        quantized = calibrate_and_quantize(exported, [inputs], NeutronQuantizer(target))
        spec = generate_neutron_compile_spec("imxrt700", **options)
        partitioner = NeutronPartitioner(spec, target, post_quantization_state_dict=quantized.state_dict())
        edge = to_edge_transform_and_lower(
            torch.export.export(quantized, inputs, strict=True),
            transform_passes=NeutronEdgePassManager(),
            partitioner=[partitioner],
            compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=core_aten_ops_exception_list),
        )
        module = edge.exported_program().graph_module
        (lowered,) = [m for n, m in module.named_children() if "lowered" in n]
        (folder / f"{name}.bin").write_bytes(lowered.processed_bytes)
        keys = "\n".join(f"{s.key}={s.value.decode()}" for s in lowered.compile_specs)
        (folder / f"{name}.txt").write_text(keys)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
