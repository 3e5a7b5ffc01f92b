"""Makes one peer's file of one network: ``python prepare.py peer network fp32|int8 folder``.

Each peer's own converter and quantizer, with its own defaults for this kind of network and processor, calibrated on the
same images.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks

CALIBRATION = 8


def edgewright(model: Any, int8: bool, path: Path) -> None:
    from edgewright import to_edge_transform_and_lower
    from edgewright.backends import xnnpack

    exported = _exported(model, int8, xnnpack.XNNPACKQuantizer, xnnpack.get_symmetric_quantization_config)
    program = to_edge_transform_and_lower(exported, partitioner=[xnnpack.XnnpackPartitioner()])
    program.to_executorch().save(str(path))


def executorch(model: Any, int8: bool, path: Path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as stock
    from executorch.exir import to_edge_transform_and_lower

    exported = _exported(model, int8, stock.XNNPACKQuantizer, stock.get_symmetric_quantization_config)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    path.write_bytes(program.to_executorch().buffer)


def _exported(model: Any, int8: bool, quantizer: Callable[[], Any], config: Callable[..., Any]) -> Any:
    import torch

    example = (networks.images(1),)
    if not int8:
        return torch.export.export(model, example)
    return torch.export.export(_quantized(model, quantizer().set_global(config(is_per_channel=True))), example)


def _quantized(model: Any, quantizer: Any) -> Any:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(model, (networks.images(1),)).module(), quantizer)
    for image in networks.images(CALIBRATION).split(1):
        prepared(image)
    return convert_pt2e(prepared)


def _onnx(model: Any, path: Path) -> None:
    import torch

    torch.onnx.export(model, (networks.images(1),), str(path), input_names=["x"], output_names=["y"], dynamo=True)


def onnxruntime(model: Any, int8: bool, path: Path) -> None:
    if not int8:
        _onnx(model, path)
        return
    from onnxruntime import quantization

    plain, ready = path.with_suffix(".plain.onnx"), path.with_suffix(".ready.onnx")
    _onnx(model, plain)
    quantization.shape_inference.quant_pre_process(str(plain), str(ready))

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.images = iter(networks.images(CALIBRATION).split(1))

        def get_next(self) -> dict[str, Any] | None:
            image = next(self.images, None)
            return None if image is None else {"x": image.numpy()}

    quantization.quantize_static(
        str(ready),
        str(path),
        Reader(),
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,  # the fastest pair on x86, as its documentation says
        weight_type=quantization.QuantType.QInt8,
    )


def openvino(model: Any, int8: bool, path: Path) -> None:
    import openvino as ov

    converted = ov.convert_model(model, example_input=networks.images(1), input=[networks.SHAPE])
    if int8:
        import nncf

        pictures = [image.numpy() for image in networks.images(CALIBRATION).split(1)]
        converted = nncf.quantize(converted, nncf.Dataset(pictures), subset_size=CALIBRATION)
    ov.save_model(converted, str(path), compress_to_fp16=False)


def litert(model: Any, int8: bool, path: Path) -> None:
    import litert_torch

    plain = path.with_suffix(".plain.tflite") if int8 else path
    litert_torch.convert(model, (networks.images(1),)).export(str(plain))
    if not int8:
        return
    from ai_edge_quantizer import qtyping, quantizer, recipe

    worker = quantizer.Quantizer(str(plain))
    worker.load_quantization_recipe(recipe.static_wi8_ai8())
    for edge in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):  # floats in, floats out, as others
        worker.update_quantization_recipe(regex=".*", operation_name=edge, algorithm_key="no_quantize")
    pictures = [{"args_0": image.numpy()} for image in networks.images(CALIBRATION).split(1)]
    path.write_bytes(worker.quantize(worker.calibrate({"serving_default": pictures})).quantized_model)


def main() -> None:
    peer, network, precision, folder = sys.argv[1:]
    model = networks.make(network, Path(folder) / f"{network}.pt")
    globals()[peer](model, precision == "int8", Path(folder) / f"{network}.{precision}.{peer}{SUFFIX[peer]}")


SUFFIX = {"edgewright": ".pte", "executorch": ".pte", "onnxruntime": ".onnx", "openvino": ".xml", "litert": ".tflite"}

if __name__ == "__main__":
    main()
