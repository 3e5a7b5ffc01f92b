"""What ``test_options`` compares: everything that a user can see of a model's way through a backend, with one option
changed. A bench makes it of keyword arguments; what it leaves out has the default."""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

from edgewright import to_edge_transform_and_lower
from edgewright.backends import ethos_u, nxp, qualcomm, samsung, xnnpack
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e

X = (torch.linspace(-1, 1, 3 * 64).reshape(1, 3, 8, 8),)
Seen = tuple[Any, ...]  # bytes of the file, the report, what is printed and logged, other files
Bench = Callable[..., Any]


class Net(torch.nn.Module):
    """Two layers, operators without weights between them, and a view at the end that may stand alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(72, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.avg_pool2d(torch.relu(self.conv(x)), 2)
        return self.head((y + y).flatten(1)).unsqueeze(1)


class Rolled(torch.nn.Module):
    """Rolling is one operator in some runtimes, and several in others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.roll(self.conv(x), 1, 1)


class Moves(torch.nn.Module):
    """Data movement apart from the layer, with an operator between them that no NPU has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cumsum(x.view(1, 3, 64), 2).view(1, 3, 8, 8))


class Cached(torch.nn.Module):
    """A product with state that every call changes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 6, 8))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return self.out(self.cache.index_copy_(1, place, self.fc(x))).sum(1)


STEP = (torch.linspace(-1, 1, 8).reshape(1, 1, 8), torch.tensor([2]))


@cache
def exported() -> ExportedProgram:
    return torch.export.export(Net().eval(), X)


@contextmanager
def logged(lines: list[str]) -> Iterator[None]:
    handler = logging.Handler()
    once = "compiled with QNN"  # a warning that a process gives once
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(lambda record: once not in record.getMessage())
    logger = logging.getLogger("edgewright")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def seen(lower: Callable[[], Any], folder: str | None = None) -> Seen:
    """Everything visible of a lowering: ``lower`` makes a program manager."""
    printed, lines = io.StringIO(), []  # type: ignore[var-annotated]
    with redirect_stdout(printed), logged(lines):
        manager = lower()
        report = {name: r.to_dict() for name, r in manager.partition_reports.items()}
        program = manager.to_executorch()
    files = {p.name: p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()} if folder else {}
    return program.buffer, program.twin, report, printed.getvalue(), lines, files


def require_about(error: Exception, name: str, value: Any, *words: str) -> None:
    """A rejection is the answer to an option only if it is about it, not about the bench."""
    about = (name, str(getattr(value, "name", value)), *words)
    assert any(text in str(error) for text in about), f"{name}={value!r} is rejected for another reason: {error}"


def lowered(program: ExportedProgram, partitioner: Callable[[], Any], folder: str | None = None) -> Seen:
    return seen(lambda: to_edge_transform_and_lower(program, partitioner=[partitioner()]), folder)


# --------------------------------------------------------------------------------------- a partitioner of each backend

QNN_FP16 = qualcomm.generate_htp_compiler_spec(use_fp16=True)
QNN = qualcomm.generate_qnn_executorch_compiler_spec("SM8650", QNN_FP16)
ENN = samsung.gen_samsung_backend_compile_spec("E9955", simulate_only=True)
NEUTRON = nxp.generate_neutron_compile_spec("imxrt700", simulate_only=True)
ETHOS = ethos_u.EthosUCompileSpec("ethos-u55-128")
PARTITIONERS: dict[str, Callable[[], Any]] = {
    "xnnpack": xnnpack.XnnpackPartitioner,
    "ethos_u": lambda: ethos_u.EthosUPartitioner(ETHOS),
    "qualcomm": lambda: qualcomm.QnnPartitioner(QNN, simulate_only=True),
    "samsung": lambda: samsung.EnnPartitioner([ENN]),
    "nxp": lambda: nxp.NeutronPartitioner(NEUTRON),
}
QUANTIZERS: dict[str, Callable[[], Any]] = {
    "xnnpack": lambda: xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config()),
    "ethos_u": lambda: ethos_u.EthosUQuantizer(ETHOS).set_global(ethos_u.get_symmetric_quantization_config()),
    "qualcomm": qualcomm.QnnQuantizer,
    "samsung": samsung.EnnQuantizer,
    "nxp": nxp.NeutronQuantizer,
}


def quantized(quantizer: Any, model: torch.nn.Module | None = None, inputs: Any = X) -> ExportedProgram:
    """A model after calibration, or after two steps of training if the quantizer is for that."""
    program = exported() if model is None else torch.export.export(model.eval(), inputs)
    module: Any = program.module()
    if quantizer._is_qat():
        prepared = prepare_qat_pt2e(module, quantizer)
        for scale in (1.0, 0.5):
            prepared(*(x * scale if x.is_floating_point() else x for x in inputs))
    else:
        prepared = prepare_pt2e(module, quantizer, inputs)
        prepared(*inputs)
    return torch.export.export(convert_pt2e(prepared), inputs)


@cache
def _quantized_once(backend: str) -> ExportedProgram:
    return quantized(QUANTIZERS[backend]())


def quantized_for(backend: str) -> ExportedProgram:
    return _quantized_once(backend)


def with_quantizer(backend: str, change: Callable[[Any], Any], **options: Any) -> Seen:
    """The file of a model that a changed quantizer quantized."""
    quantizer = QUANTIZERS[backend]()
    change(quantizer)
    return lowered(quantized(quantizer, **options), PARTITIONERS[backend])


def with_config(backend: str, config: Any, scale: float = 1.0) -> Seen:
    """``scale``: of the input, where the smallest scale of the scheme would hide a difference."""

    def change(quantizer: Any) -> None:
        quantizer.by_operator.clear()  # Qualcomm's default has one of its own for linear layers
        quantizer.set_global(config)

    return with_quantizer(backend, change, inputs=(X[0] * scale,))


def in_folder(make: Callable[[str], Seen]) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        return make(folder)
