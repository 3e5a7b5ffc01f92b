"""What a quantizer is told: schemes of submodules, blocks, nodes to leave alone, annotations of one's own."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import fx, nn
from torchao.quantization.pt2e import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from edgewright.backends.qualcomm import (
    ModuleQConfig,
    QnnQuantizer,
    QuantDtype,
    get_qnn_quantization_config,
    get_submodule_name_predicate,
    get_submodule_type_predicate,
)
from edgewright.errors import UsageError
from edgewright.quantize.block_scales import BlockObserver

X = (torch.randn(2, 16, 4, 4, generator=torch.Generator().manual_seed(0)),)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.mean((2, 3)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(16, 16, 1), Head()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)))


def converted(quantizer: QnnQuantizer, *, qat: bool = False) -> fx.GraphModule:
    exported = torch.export.export(Net().train(qat), X, strict=True).module()
    prepared = (prepare_qat_pt2e if qat else prepare_pt2e)(exported, quantizer)
    prepared(*X)
    return convert_pt2e(prepared)


def ranges(module: fx.GraphModule, of: str) -> set[tuple[int, int]]:
    """The ends of the integers that weights (or activations) of a model are dequantized from."""
    found = [n for n in module.graph.nodes if "dequantize" in str(n.target)]
    constant = [n for n in found if n.args[0].op == "get_attr"]  # folded weights
    chosen = constant if of == "weights" else [n for n in found if n not in constant]
    place = 4 if of == "weights" else 3
    return {tuple(n.args[place : place + 2]) for n in chosen if "affine" not in str(n.target)}


def test_submodules_have_schemes_of_their_own_and_the_first_that_fits_holds() -> None:
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(is_conv_per_channel=True, is_linear_per_channel=True)
    wide = ModuleQConfig(QuantDtype.use_16a4w, is_conv_per_channel=True, is_linear_per_channel=True)
    wider = ModuleQConfig(QuantDtype.use_16a16w)
    listed = [(get_submodule_type_predicate("Head"), wide), (get_submodule_name_predicate("head.fc"), wider)]
    quantizer.set_submodule_qconfig_list(listed)
    made = converted(quantizer)
    assert ranges(made, "weights") == {(-127, 127), (-7, 7)}
    assert {(0, 255), (0, 65535)} <= ranges(made, "activations")


def test_submodules_may_be_left_alone_and_bad_lists_are_refused() -> None:
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(is_conv_per_channel=True, is_linear_per_channel=True)
    quantizer.set_submodule_qconfig_list([(get_submodule_name_predicate("head"), None)])
    assert len(ranges(converted(quantizer), "weights")) == 1
    with pytest.raises(UsageError, match="submodule_qconfig_list: must hold pairs"):
        quantizer.set_submodule_qconfig_list([(get_submodule_name_predicate("head"), "8a8w")])


@pytest.mark.parametrize("qat", [False, True])
def test_blocks_have_scales_that_are_multiples_of_their_channels(qat: bool) -> None:
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype.use_16a4w_block, is_qat=qat)
    quantizer.set_block_size_map({"conv2d": (1, 8, 1, 1), "linear": (1, 8)})
    made = converted(quantizer, qat=qat)
    blocks = [n for n in made.graph.nodes if "dequantize_affine" in str(n.target)]
    assert [list(n.args[1]) for n in blocks] == [[1, 8, 1, 1], [1, 8]]
    for node in blocks:
        scale = getattr(made, node.args[2].target).reshape(-1, 2)
        multiples = scale / scale.amax(1, keepdim=True) * 16
        assert torch.allclose(multiples, multiples.round(), atol=1e-3)
        assert multiples.min() >= 1 and multiples.max() <= 16


@pytest.mark.parametrize("training", [False, True])
def test_batch_norms_behind_blocks_are_folded_before_training(training: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    with torch.no_grad():
        model(X[0] * 3 + 1)  # statistics that are not those of nothing
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype.use_16a4w_block, is_qat=True)
    quantizer.set_block_size_map({"conv2d": (1, 8, 1, 1)})
    prepared = prepare_qat_pt2e(torch.export.export(model.train(training), X, strict=True).module(), quantizer)
    prepared(*X)
    assert any("folded_weight" in name for name, _ in prepared.named_parameters())
    made = convert_pt2e(prepared)
    assert not [n for n in made.graph.nodes if "batch_norm" in str(n.target)]
    with torch.no_grad():
        assert float((made(*X) - model.eval()(*X)).abs().max()) < 0.15  # 4 bits of weights


def test_training_sees_rounded_blocks_and_passes_gradients_on() -> None:
    weight = torch.randn(4, 8, requires_grad=True)
    rounded = BlockObserver(block=(1, 4), fake=True)(weight)
    assert 0 < float((rounded - weight).detach().abs().max()) < float(weight.detach().abs().max()) / 7
    rounded.sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("scheme", "blocks", "message"),
    [
        (QuantDtype.use_16a4w, {"linear": (1, 8)}, "must be of a node of the scheme use_16a4w_block; got use_16a4w"),
        (QuantDtype.use_16a4w_block, {"linear": (1, 5)}, "a divisor of the input channels"),
        (QuantDtype.use_16a4w_block, {"linear": (1, 4)}, "a multiple of 8 input channels, or of all"),
        (QuantDtype.use_16a4w_block, {"conv2d": (1, 8)}, "a divisor of the input channels"),
        (QuantDtype.use_16a4w_block, {"mean": (1, 8)}, "must be of a linear layer or a plain convolution"),
        (QuantDtype.use_16a4w_block, {"linear_7": (1, 8)}, "must name nodes that are quantized; got linear_7"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(scheme: QuantDtype, blocks: dict[str, Any], message: str) -> None:
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(scheme)
    quantizer.set_block_size_map(blocks)
    with pytest.raises(UsageError, match=message):
        converted(quantizer)


def test_nodes_and_operators_are_left_alone() -> None:
    quantizer = QnnQuantizer()
    quantizer.add_discard_nodes(["linear"])
    assert len(_weights(converted(quantizer))) == 1
    quantizer = QnnQuantizer()
    quantizer.add_discard_ops([torch.ops.aten.conv2d.default])
    assert len(_weights(converted(quantizer))) == 1


def test_nodes_that_are_decomposed_are_left_alone_too() -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, q, q) * 2

    quantizer = QnnQuantizer()
    quantizer.add_discard_nodes(["scaled_dot_product_attention"])
    given = (torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(0)),)
    prepared = prepare_pt2e(torch.export.export(Attention().eval(), given, strict=True).module(), quantizer)
    quantized = {n.args[0].name for n in prepared.graph.nodes if n.name.startswith("activation_post_process")}
    assert quantized and not [name for name in quantized if "softmax" in name]


def test_nodes_that_are_nowhere_are_told(caplog: pytest.LogCaptureFixture) -> None:
    quantizer = QnnQuantizer()
    quantizer.add_discard_nodes(["liner", "relu"])
    converted(quantizer)
    assert [r.getMessage() for r in caplog.records if "discard" in r.getMessage()] == [
        "discard_nodes: no node is called 'liner'. Did you mean linear?"
    ]


def test_schemes_that_a_soc_does_not_have_are_refused() -> None:
    quantizer = QnnQuantizer("SM8450")
    quantizer.set_default_quant_config(QuantDtype.use_16a16w)
    with pytest.raises(UsageError, match=r"conv2d 'conv2d' in use_16a16w: needs Hexagon v73, and SM8450 has v69"):
        converted(quantizer)
    quantizer.set_submodule_qconfig_list([(lambda node: "conv" in node.name, ModuleQConfig(QuantDtype.use_16a8w))])
    with pytest.raises(UsageError, match=r"linear 'linear' in use_16a16w: needs Hexagon v73"):
        converted(quantizer)
    quantizer = QnnQuantizer("SA8295")
    quantizer.set_default_quant_config(QuantDtype.use_16a4w_block)
    quantizer.set_block_size_map({"conv2d": (1, 8, 1, 1)})
    with pytest.raises(UsageError, match=r"needs Hexagon v69, and SA8295 has v68\n  Use use_16a4w, without blocks"):
        converted(quantizer)


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("add_discard_nodes", "relu", "discard_nodes: must be names of nodes, in a list; got relu"),
        ("add_discard_nodes", [torch.ops.aten.relu.default], "discard_nodes: must be names"),
        ("add_discard_ops", torch.ops.aten.relu.default, "discard_ops: must be operators, in a list"),
        ("add_custom_quant_annotations", print, "custom_quant_annotations: must be functions"),
        ("add_custom_quant_annotations", [3], "custom_quant_annotations: must be functions"),
        ("set_block_size_map", {"conv2d": 16}, "block_size_map: must hold blocks by the names of nodes"),
        ("set_block_size_map", "conv2d", "block_size_map: must hold blocks by the names of nodes"),
    ],
)
def test_what_is_not_of_its_kind_is_refused(option: str, given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        getattr(QnnQuantizer(), option)(given)


def _weights(module: fx.GraphModule) -> list[fx.Node]:
    found = [n for n in module.graph.nodes if "dequantize" in str(n.target)]
    return [n for n in found if n.args[0].op == "get_attr"]


def test_annotations_of_ones_own_stay() -> None:
    wide = get_qnn_quantization_config(QuantDtype.use_16a8w, is_per_channel=False)

    def annotate(module: fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target == torch.ops.aten.linear.default:
                specs = {node.args[0]: wide.activation, node.args[1]: wide.weight}
                made = QuantizationAnnotation(input_qspec_map=specs, output_qspec=wide.activation, _annotated=True)
                node.meta[Q_ANNOTATION_KEY] = made

    quantizer = QnnQuantizer()
    quantizer.add_custom_quant_annotations([annotate])
    assert (0, 65535) in ranges(converted(quantizer), "activations")


def test_activations_may_be_watched_by_another() -> None:
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(act_observer=MinMaxObserver, eps=2.0)
    made = converted(quantizer)
    scales = {n.args[1] for n in made.graph.nodes if "quantize_per_tensor" in str(n.target)}
    assert scales == {2.0}


@pytest.mark.sample(2)
@pytest.mark.parametrize("scheme", [QuantDtype.use_8a8w, QuantDtype.use_16a8w])
@pytest.mark.parametrize("qat", [False, True])
def test_activations_may_have_zero_in_their_middle(scheme: QuantDtype, qat: bool) -> None:
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(scheme, is_qat=qat, act_symmetric=True)
    made = converted(quantizer, qat=qat)
    found = [
        n.args for n in made.graph.nodes if "dequantize_per_tensor" in str(n.target) and n.args[0].op != "get_attr"
    ]
    assert all(abs(int(zero) - (low + high) / 2) <= 0.5 for _, _, zero, low, high, *_ in found)
    with torch.no_grad():
        assert torch.allclose(made(*X), Net()(*X), atol=0.05)


def test_ranges_that_are_known_stay_what_they_are() -> None:
    config = get_qnn_quantization_config(QuantDtype.use_8a8w, act_symmetric=True)
    assert (config.known_range_spec(-1.0, 1.0).zero_point, config.known_range_spec(0.0, 1.0).zero_point) == (128, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_embedding_per_channel": True}, "is_embedding_per_channel: must be False"),
        ({"quant_dtype": QuantDtype.use_16a2w}, r"must be one of use_8a8w.*got use_16a2w\n  2-bit weights"),
        ({"quant_dtype": QuantDtype.use_fp16a8w}, "no operators with floating-point activations"),
    ],
)
def test_what_the_htp_does_not_have_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QnnQuantizer().set_default_quant_config(**options)


@pytest.mark.slow
def test_options_are_stocks_in_its_order() -> None:
    from executorch.backends.qualcomm.quantizer import quantizer as stock  # takes seconds

    theirs = list(inspect.signature(stock.QnnQuantizer.set_default_quant_config).parameters)
    assert list(inspect.signature(QnnQuantizer.set_default_quant_config).parameters) == theirs
    assert [f.name for f in fields(ModuleQConfig)] == [f.name for f in fields(stock.ModuleQConfig)]
    assert {s.name: int(s) for s in QuantDtype} == {s.name: int(s) for s in stock.QuantDtype}
