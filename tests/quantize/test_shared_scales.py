"""Values that are joined with wider ones keep the scale that fits their other readers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew
from edgewright.ir.ports import ACT, Range, Same, Tied
from edgewright.quantize.shared_scales import SharingConstraint, solve_sharing
from tests.backends.qualcomm.lowered import ratio

JOIN = {"tensors": ACT, "out": Same("tensors")}
MOVE = {"self": ACT, "out": Same("self")}
STATIC = ["xnnpack", "ethos-u55-128", "sm8650", "e9955", "imxrt700"]


def _grid(size: int) -> Tensor:
    return torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="xy"), -1).float()


class Yolo5(nn.Module):
    """The head of YOLOv5: parts of one sigmoid become pixels, and are concatenated with the rest of it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 3 * 7, 1)
        self.register_buffer("anchors", torch.tensor([[10.0, 13], [16, 30], [33, 23]]).view(1, 3, 1, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).view(1, 3, 7, 5, 5).permute(0, 1, 3, 4, 2).sigmoid()
        center, size, rest = y.split((2, 2, 3), 4)
        return torch.cat(((center * 2 - 0.5 + _grid(5)) * 8, (size * 2) ** 2 * self.anchors, rest), 4)


class Yolox(nn.Module):
    """The head of YOLOX: the same with the result of a convolution, whose range only data can tell."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 7, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).flatten(2).transpose(1, 2)
        pixels = (y[..., :2] + _grid(5).view(1, 25, 2)) * 8
        return torch.cat([pixels, torch.exp(y[..., 2:4]) * 8, y[..., 4:]], -1)


class Beside(nn.Module):
    """An input that is concatenated with wide values, and read by a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.wide = nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return y, self.wide(torch.cat([x, 500 * y], 1))


@pytest.mark.parametrize("target", STATIC)
@pytest.mark.parametrize(("model", "decibels"), [(Yolo5, 36), (Yolox, 30), (Beside, 30)])
def test_a_wide_concatenation_leaves_other_readers_their_precision(
    model: type[nn.Module], decibels: float, target: str
) -> None:
    torch.manual_seed(0)
    network = model().eval()
    inputs = [(2 * torch.randn(1, 8, 5, 5),) for _ in range(8)]
    result = ew.compile(network, inputs[0], target, quantize="int8", calibration=inputs, evaluate=0, quiet=True,
                        simulate=True if target == "sm8650" else None)  # fmt: skip
    made, expected = result.run(*inputs[1]), network(*inputs[1])
    pairs = zip(made, expected, strict=True) if isinstance(expected, tuple) else [(made, expected)]
    with torch.no_grad():
        assert min(ratio(want, torch.as_tensor(got)) for got, want in pairs) > decibels


def _head(read_elsewhere: bool) -> list[SharingConstraint]:
    """A result of which one part is joined with a wider value."""
    units = [
        SharingConstraint({"self": ACT, "out": ACT}, {"self": ["_r"]}, "r"),
        SharingConstraint({"self": ACT, "out": ACT}, {"self": ["_w"]}, "w"),
        SharingConstraint(MOVE, {"self": ["rp"]}, "p", {"rp": "r"}),
        SharingConstraint(JOIN, {"tensors": ["pj", "wj"]}, "j", {"pj": "p", "wj": "w"}),
    ]
    if read_elsewhere:
        units.append(SharingConstraint({"self": ACT, "out": ACT}, {"self": ["ro"]}, "o", {"ro": "r"}))
    return units


@pytest.mark.parametrize("width", [50.0, 3.0])
@pytest.mark.parametrize("read_elsewhere", [True, False])
def test_a_narrow_result_leaves_a_wide_set_if_others_read_it(width: float, read_elsewhere: bool) -> None:
    spans = {"r": (-1.0, 1.0), "p": (-1.0, 1.0), "w": (0.0, width), "j": (-1.0, width)}
    sharing = solve_sharing(_head(read_elsewhere), lambda points: {p: s for p, s in spans.items() if p in points})
    leaders = sharing.leaders
    assert leaders["rp"] == leaders["p"] == leaders["r"] and leaders["pj"] == leaders["wj"] == leaders["w"]
    leaves = read_elsewhere and width > 4
    assert (leaders["r"] != leaders["j"]) == leaves
    assert (leaders["pj"] in sharing.own) == leaves


def test_without_data_results_stay_together() -> None:
    leaders = solve_sharing(_head(True)).leaders
    assert leaders["r"] == leaders["pj"] == leaders["w"]


def test_a_known_range_behind_movement_is_not_pushed_onto_a_tied_result() -> None:
    units = [
        SharingConstraint({"self": ACT, "out": Range(0, 1)}, {"self": ["_s"]}, "s"),
        SharingConstraint(MOVE, {"self": ["sv"]}, "v", {"sv": "s"}),
        SharingConstraint({"self": ACT, "out": Tied("self")}, {"self": ["vm"]}, "m", {"vm": "v"}),
    ]
    leaders = solve_sharing(units).leaders
    assert leaders["v"] == "s" and leaders["m"] == leaders["vm"] != "s"
