"""Makes one peer's file of one network: ``python prepare.py peer network fp32|int8|int4 folder``.

Each peer's own converter and quantizer, with its own defaults for this kind of network and processor, calibrated on the
same images.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks

CALIBRATION = 8


@dataclass(frozen=True)
class Wanted:
    """A network, how it is to be quantized, and inputs of it."""

    model: Any
    name: str
    precision: str

    @property
    def int8(self) -> bool:
        return self.precision == "int8"

    @property
    def dynamic(self) -> bool:
        return networks.SUITE[self.name].dynamic

    @property
    def example(self) -> tuple[Any, ...]:
        return networks.examples(self.name)[0]

    def calibration(self) -> list[tuple[Any, ...]]:
        return networks.examples(self.name, CALIBRATION)


def edgewright(wanted: Wanted, path: Path) -> None:
    from edgewright import to_edge_transform_and_lower
    from edgewright.backends import xnnpack

    exported = _exported(wanted, xnnpack.XNNPACKQuantizer, xnnpack.get_symmetric_quantization_config)
    program = to_edge_transform_and_lower(exported, partitioner=[xnnpack.XnnpackPartitioner()])
    program.to_executorch().save(str(path))


def executorch(wanted: Wanted, path: Path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as stock
    from executorch.exir import to_edge_transform_and_lower

    exported = _exported(wanted, stock.XNNPACKQuantizer, stock.get_symmetric_quantization_config)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    path.write_bytes(program.to_executorch().buffer)


def _exported(wanted: Wanted, quantizer: Callable[[], Any], config: Callable[..., Any]) -> Any:
    import torch

    model = wanted.model
    if wanted.int8:
        model = _quantized(wanted, quantizer().set_global(config(is_per_channel=True, is_dynamic=wanted.dynamic)))
    if wanted.precision == "int4":
        from torchao.quantization import quantize_
        from torchao.quantization.granularity import PerGroup
        from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig

        groups = PerGroup(networks.GROUP)
        quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=groups))
    return torch.export.export(model, wanted.example)


def _quantized(wanted: Wanted, quantizer: Any) -> Any:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(wanted.model, wanted.example).module(), quantizer)
    for inputs in wanted.calibration():
        prepared(*inputs)
    return convert_pt2e(prepared)


def _onnx(wanted: Wanted, path: Path) -> None:
    import torch

    names = [f"x{i}" for i in range(len(wanted.example))]
    torch.onnx.export(wanted.model, wanted.example, str(path), input_names=names, output_names=["y"], dynamo=True)


def onnxruntime(wanted: Wanted, path: Path) -> None:
    if wanted.precision == "fp32":
        _onnx(wanted, path)
        return
    from onnxruntime import quantization

    plain, ready = path.with_suffix(".plain.onnx"), path.with_suffix(".ready.onnx")
    _onnx(wanted, plain)
    if wanted.precision == "int4":
        _onnx_int4(plain, path)
        return
    quantization.shape_inference.quant_pre_process(str(plain), str(ready))
    if wanted.dynamic:
        quantization.quantize_dynamic(str(ready), str(path), per_channel=True)
        return

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.given = iter(wanted.calibration())

        def get_next(self) -> dict[str, Any] | None:
            inputs = next(self.given, None)
            return None if inputs is None else {f"x{i}": x.numpy() for i, x in enumerate(inputs)}

    quantization.quantize_static(
        str(ready),
        str(path),
        Reader(),
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,  # the fastest pair on x86, as its documentation says
        weight_type=quantization.QuantType.QInt8,
    )


def _onnx_int4(plain: Path, path: Path) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    # Activations in 8 bits, as the others have them (accuracy level 4), which is also its fastest.
    given = {"bits": 4, "block_size": networks.GROUP, "is_symmetric": True, "accuracy_level": 4}
    worker = MatMulNBitsQuantizer(onnx.load(str(plain)), **given)
    worker.process()
    worker.model.save_model_to_file(str(path), use_external_data_format=True)


def openvino(wanted: Wanted, path: Path) -> None:
    import openvino as ov
    import torch

    converted = ov.convert_model(torch.export.export(wanted.model, wanted.example))
    if wanted.int8:
        import nncf

        data = [[x.numpy() for x in inputs] for inputs in wanted.calibration()]
        kind = nncf.ModelType.TRANSFORMER if wanted.dynamic or networks.SUITE[wanted.name].attention else None
        converted = nncf.quantize(converted, nncf.Dataset(data), subset_size=CALIBRATION, model_type=kind)
    if wanted.precision == "int4":
        import nncf

        mode = nncf.CompressWeightsMode.INT4_SYM
        converted = nncf.compress_weights(converted, mode=mode, group_size=networks.GROUP, ratio=1.0, all_layers=True)
    ov.save_model(converted, str(path), compress_to_fp16=False)


def litert(wanted: Wanted, path: Path) -> None:
    import litert_torch

    if wanted.dynamic or wanted.precision == "int4":
        raise SystemExit("only networks of images, at fp32 and static int8")
    plain = path.with_suffix(".plain.tflite") if wanted.int8 else path
    litert_torch.convert(wanted.model, wanted.example).export(str(plain))
    if not wanted.int8:
        return
    from ai_edge_quantizer import qtyping, quantizer, recipe

    worker = quantizer.Quantizer(str(plain))
    worker.load_quantization_recipe(recipe.static_wi8_ai8())
    for edge in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):  # floats in, floats out, as others
        worker.update_quantization_recipe(regex=".*", operation_name=edge, algorithm_key="no_quantize")
    pictures = [{f"args_{i}": x.numpy() for i, x in enumerate(inputs)} for inputs in wanted.calibration()]
    path.write_bytes(worker.quantize(worker.calibrate({"serving_default": pictures})).quantized_model)


def main() -> None:
    peer, network, precision, folder = sys.argv[1:]
    model = networks.make(network, Path(folder) / f"{network}.pt")
    path = Path(folder) / f"{network}.{precision}.{peer}{SUFFIX[peer]}"
    import torch

    with torch.no_grad():  # else state cannot be written to where weights may be trained
        globals()[peer](Wanted(model, network, precision), path)


SUFFIX = {"edgewright": ".pte", "executorch": ".pte", "onnxruntime": ".onnx", "openvino": ".xml", "litert": ".tflite"}

if __name__ == "__main__":
    main()
