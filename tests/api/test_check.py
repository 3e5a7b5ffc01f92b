"""The self-check: a file that computes something else than its graph is an error that names the layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import edgewright as ew
from edgewright import to_edge_transform_and_lower
from edgewright.api import locate, self_check
from edgewright.api.data import Call
from edgewright.api.deviation import OutputDeviation
from edgewright.api.graph_interpreter import GraphInterpreter, Override, Visitor, is_finite
from edgewright.api.quantized_graph import is_dequantize
from edgewright.api.self_check import check_cases, check_program
from edgewright.backends import find_partitioner
from edgewright.backends.ethos_u import partitioner as ethos_u_partitioner
from edgewright.backends.samsung.partitioner import EnnPartitioner
from edgewright.backends.table import Rounding
from edgewright.backends.targets import find_target
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.errors import EdgewrightError, HalfOverflowError, MiscompileError, VendorError
from edgewright.ir.graph import Graph, Op
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.quantize.integer_io import integer_io
from tests.api.models import Net, Words, calls, net

Defect = Callable[[Op], None]
Plant = Callable[..., None]
MODULES = ("stem", "body.0", "fc")


def flip_weights(op: Op) -> None:
    """The first filter of a layer with its sign turned around."""
    weight = op.args["weight"]
    data = np.array(weight.data)
    data[0] = -np.maximum(data[0], -127)
    op.args["weight"] = replace(weight, data=data)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Makes a backend's lowering wrong for one module; ``most``: in groups of at most so many outputs."""

    def planted(target: str, module: str, most: int = 1000) -> None:
        cls = find_partitioner(find_target(target).backend)
        right = cls.lower

        def wrong(self: Any, group: Graph) -> Any:
            for op in group.ops if len(group.outputs) <= most else ():
                if op.origin is not None and op.origin.module == module and op.args.get("weight") is not None:
                    flip_weights(op)
            return right(self, group)

        monkeypatch.setattr(cls, "lower", wrong)

    return planted


def compiled(target: str, quantize: str | None = "int8", **options: Any) -> Any:
    data = calls() if quantize else None
    return ew.compile(net(), calls(1)[0], target, quantize=quantize, calibration=data, **options)


SLOW = [pytest.param(t, m, marks=pytest.mark.slow) for t in ("ethos-u55-128", "imxrt700", "e9955") for m in MODULES]


@pytest.mark.parametrize(
    ("target", "module"), [("xnnpack", "stem"), ("xnnpack", "fc"), ("ethos-u55-128", "body.0"), *SLOW]
)
def test_a_wrong_layer_is_named(plant: Plant, target: str, module: str) -> None:
    plant(target, module)
    with pytest.raises(MiscompileError, match=rf"{target}: method 'forward': layer '{module}' \(") as caught:
        compiled(target)
    assert caught.value.module == module
    assert caught.value.sqnr is not None and caught.value.sqnr < 40  # which is not much in a table
    assert "steps of rounding" in str(caught.value) and "--no-check" in str(caught.value)


class Chaotic(Net):
    """A step of the last layer is a turn of the sine: any output is within what rounding explains."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(2000 * super().forward(x))


def test_a_wrong_layer_is_named_where_outputs_show_nothing(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_chaotic() -> Any:
        return ew.compile(Chaotic().eval(), calls(1)[0], "xnnpack", quantize="int8", calibration=calls())

    assert compile_chaotic().report.check.sqnr > 100
    plant("xnnpack", "stem")
    with pytest.raises(MiscompileError, match=r"layer 'stem' \(") as caught:
        compile_chaotic()
    assert caught.value.module == "stem"
    monkeypatch.setattr(locate, "with_results", _refuse)  # no layer can be opened: the outputs are all there is
    check = compile_chaotic().report.check
    assert check.inputs == 2 and "layers cannot be compared: Vela: must keep the graph's outputs" in check.note


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_results_of_integers_are_freed_of_the_rounding_of_half_precision(dtype: torch.dtype) -> None:
    """A layer that subtracts nearly as much would show it. 16 bits are finer than half precision: they stay."""
    graph = torch.fx.Graph()
    limits = (2, torch.iinfo(dtype).min, torch.iinfo(dtype).max, dtype)
    x = graph.placeholder("x")
    integers = graph.call_function(torch.ops.quantized_decomposed.quantize_per_tensor.default, (x, 0.06, *limits))
    node = graph.call_function(torch.ops.quantized_decomposed.dequantize_per_tensor.default, (integers, 0.06, *limits))
    integers.meta["val"] = torch.zeros(254, dtype=dtype)
    exact = torch.arange(-2, 252) * 0.06
    half = exact.half().float()
    assert (half - exact).abs().max() > 0.003
    result = locate._on_grid(node, half)
    torch.testing.assert_close(result, exact if dtype == torch.uint8 else half, rtol=0, atol=1e-6)


def _refuse(exported: Any, names: Any) -> Any:
    raise VendorError("Vela", "must keep the graph's outputs")


@pytest.mark.parametrize("target", ["xnnpack", "e9955"])
def test_layers_in_floating_point(plant: Plant, target: str) -> None:
    assert compiled(target, None).report.check.inputs == 1
    plant(target, "body.0")
    with pytest.raises(MiscompileError, match=r"layer 'body.0' \(conv2d.*within [\d.]+ dB of rounding; got"):
        compiled(target, None)


def test_without_the_check(plant: Plant) -> None:
    plant("xnnpack", "stem")
    result = compiled("xnnpack", check=False)
    assert "not checked against its graph: not requested" in result.summary


def test_one_wrong_target_of_several(plant: Plant) -> None:
    plant("imxrt700", "fc")
    results = ew.compile(net(), calls(1)[0], ["xnnpack", "imxrt700"], quantize="int8", calibration=calls())
    assert list(results) == ["xnnpack"]
    assert isinstance(results.failures["imxrt700"], MiscompileError)
    assert results.failures["imxrt700"].exit_code == 15
    assert results["xnnpack"].report.to_dict()["check"]["inputs"] == 2


def test_a_vendor_that_takes_few_outputs(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are opened one at a time, by bisection."""
    whole = locate.with_results

    def few(exported: Any, names: Any) -> Any:
        if len(names) > 1:
            raise VendorError("Vela", "must keep the graph's outputs")
        return whole(exported, names)

    monkeypatch.setattr(locate, "with_results", few)
    plant("xnnpack", "body.0")
    with pytest.raises(MiscompileError, match=r"layer 'body\.0'"):
        compiled("xnnpack")


@pytest.mark.parametrize("too_large", [False, True])
def test_layers_are_compared_without_a_search_for_a_small_arena(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, too_large: bool
) -> None:
    """... unless the arena is then too large for the device."""
    runs: list[tuple[bool, int]] = []  # whether Vela searched, and how many outputs the graph had
    whole = ethos_u_partitioner.compile_tosa

    def recorded(tosa: bytes, spec: Any, **sizes: Any) -> Any:
        searches = "--tensor-allocator=LinearAlloc" not in spec.extra_flags
        runs.append((searches, len(sizes["outputs"])))
        if too_large and not searches:
            raise VendorError("Vela", "must fit the arena")
        return whole(tosa, spec, **sizes)

    monkeypatch.setattr(ethos_u_partitioner, "compile_tosa", recorded)
    plant("ethos-u55-128", "body.0")
    with pytest.raises(MiscompileError, match=r"layer 'body\.0'"):
        compiled("ethos-u55-128")
    layers = runs[1][1]
    assert layers > 2
    assert runs == [(True, 1), (False, layers), *([(True, layers)] if too_large else [])]


@pytest.mark.parametrize(("most", "told"), [(2, "layer 'body.0'"), (1, "how layers are fused, or share memory")])
def test_a_fault_that_opened_layers_hide(plant: Plant, most: int, told: str) -> None:
    plant("xnnpack", "body.0", most)
    with pytest.raises(MiscompileError, match=told):
        compiled("xnnpack")


# ---------------------------------------------------------------------------------------------- kinds of models


class Deciding(torch.nn.Module):
    """Chooses, and computes otherwise by what it chose."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self.fc(x).argmax(1)
        return chosen, torch.where(chosen > 3, 1.0, -1.0)[:, None] * x


def test_decisions_that_rounding_flips_are_no_fault(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are others altogether, and every layer is right for what the layers before it gave."""
    right = GraphInterpreter.run

    def near_ties(self: GraphInterpreter, given: Any, visitors: Any = ()) -> Any:
        made = right(self, given, visitors)
        whole = not visitors or not isinstance(visitors[0], Override)
        return [[7 - chosen, -y] for chosen, y in made] if whole else made

    monkeypatch.setattr(GraphInterpreter, "run", near_ties)
    model, x = Deciding().eval(), torch.randn(4, 8)
    assert ew.compile(model, x, "xnnpack").report.check.note.startswith("rounding flips decisions")
    plant("xnnpack", "fc")
    with pytest.raises(MiscompileError, match="layer 'fc'"):
        ew.compile(model, x, "xnnpack")


def test_indices_are_compared_exactly(plant: Plant) -> None:
    model, x = Deciding().eval(), torch.randn(64, 8)
    found = ew.compile(model, x, "xnnpack").report.check
    assert (found.inputs, found.note) == (1, "")
    plant("xnnpack", "fc")
    with pytest.raises(MiscompileError, match="layer 'fc'"):
        ew.compile(model, x, "xnnpack")


def _checked(program: Any, exported: Any, inputs: list[Any]) -> Any:
    def lower(changed: Any) -> Any:
        return to_edge_transform_and_lower(changed, partitioner=[XnnpackPartitioner()]).to_executorch()

    cases = {"forward": [[Call((x,)) for x in inputs]]}
    return check_program(program, {"forward": exported}, cases, lower, Rounding())


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(self.fc(x))
        return self.total * 2


@pytest.mark.parametrize("quantize", [pytest.param(None, marks=pytest.mark.slow), "int8"])
def test_state(plant: Plant, quantize: str | None) -> None:
    data = [torch.rand(2, 4) for _ in range(4)]
    options: dict[str, Any] = {"quantize": quantize, "calibration": data}
    model = Counting().eval()
    result = ew.compile(model, data[0], "xnnpack", **options)
    assert (result.report.check.inputs, result.report.check.skipped) == (2, "")
    assert not model.total.any()
    plant("xnnpack", "fc")
    with pytest.raises(MiscompileError, match="layer 'fc'"):
        ew.compile(model, data[0], "xnnpack", **options)


@pytest.mark.parametrize("quantize", [None, pytest.param("int8", marks=pytest.mark.slow), "dynamic"])
def test_dynamic_shapes_are_checked_at_their_bounds(plant: Plant, quantize: str | None) -> None:
    rows = torch.export.Dim("rows", min=2, max=32)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
    torch.nn.init.ones_(model[0].bias)  # the wrong filter's output passes the ReLU
    data = [torch.rand(5, 4) for _ in range(4)]
    options: dict[str, Any] = {"quantize": quantize, "calibration": data, "dynamic_shapes": ({0: rows},)}
    assert ew.compile(model, data[0], "xnnpack", **options).report.check.inputs == 2 + 3
    plant("xnnpack", "0")
    with pytest.raises(MiscompileError, match="layer '0'"):
        ew.compile(model, data[0], "xnnpack", **options)


@pytest.mark.parametrize("target", ["xnnpack", pytest.param("ethos-u55-128", marks=pytest.mark.slow)])
def test_integer_inputs(plant: Plant, target: str) -> None:
    data = [{"ids": torch.randint(0, 10, (1, 6)), "mask": torch.ones(1, 6)} for _ in range(4)]
    result = ew.compile(Words().eval(), data[0], target, quantize="int8", calibration=data)
    assert result.report.check.inputs == 2
    plant(target, "fc")
    with pytest.raises(MiscompileError, match="layer 'fc'"):
        ew.compile(Words().eval(), data[0], target, quantize="int8", calibration=data)


def test_inputs_and_outputs_that_are_quantized() -> None:
    quantized = compiled("xnnpack").exported
    exported, parameters = integer_io(quantized)
    x = parameters["input0"]
    data = [(c / x.scale + x.zero_point).round().clamp(x.qmin, x.qmax).to(x.dtype) for c in calls(2)]
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    found = _checked(program, exported, data)
    assert (found.inputs, found.skipped) == (2, "")
    assert found.sqnr is not None and found.sqnr > 30


def test_several_methods(plant: Plant) -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.net(x) / 2
            return y

    sources = {"half": torch.export.export(Half().eval(), (calls(1)[0],)),
               "forward": torch.export.export(net(), (calls(1)[0],))}  # fmt: skip

    def lower(programs: Any) -> Any:
        return to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()]).to_executorch()

    cases = {name: [[Call((x,)) for x in calls(2)]] for name in sources}
    assert check_program(lower(sources), sources, cases, lower, Rounding()).inputs == 4
    plant("xnnpack", "net.fc")
    with pytest.raises(MiscompileError, match=r"method 'half': layer 'net\.fc'"):
        check_program(lower(sources), sources, cases, lower, Rounding())


def test_a_dropout_that_is_off_draws_nothing() -> None:
    class Attending(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return torch.dropout(y, 0.5, False)

    assert ew.compile(Attending(), torch.randn(1, 2, 4, 8), "xnnpack").report.check.inputs == 1


def test_what_cannot_be_checked_says_so() -> None:
    class Drawing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand(4)

    exported = torch.export.export(Drawing(), (torch.ones(4),))
    found = check_program(None, {"forward": exported}, {"forward": [[Call((torch.ones(4),))]]}, lambda e: e, Rounding())
    assert found.skipped == "forward: aten.rand.default draws random numbers"
    found = check_program(None, {"forward": torch.export.export(net(), (calls(1)[0],))}, {}, lambda e: e, Rounding())
    assert found.skipped == "forward: there are no example inputs"
    config = ExecutorchBackendConfig(passes=[lambda module: None])
    assert "passes of yours" in compiled("xnnpack", None, config=config).report.check.skipped


def test_weights_beside_the_program() -> None:
    result = compiled("xnnpack", None, config=ExecutorchBackendConfig(external_constants=True))
    assert result.report.check.inputs == 1


def test_an_example_of_one_number_is_varied() -> None:
    example = Call((torch.zeros(2, 3), torch.tensor([1, 2])))
    first, second = check_cases(torch.export.export(net(), (calls(1)[0],)), example, [])[0]
    assert first is example
    assert second.args[0].std() > 0 and torch.equal(second.args[1], example.args[1])
    assert check_cases(torch.export.export(net(), (calls(1)[0],)), Call((calls(1)[0],)), [])[0][1:] == []


def test_layers_are_compared_without_vela_where_commands_do_not_run(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """... also if several delegates have inputs and outputs of the same sizes."""
    runs: list[int] = []
    whole = ethos_u_partitioner.compile_tosa
    monkeypatch.setattr(ethos_u_partitioner, "compile_tosa", lambda *a, **k: runs.append(len(a)) or whole(*a, **k))
    monkeypatch.setattr(self_check, "_INFORMATIVE", 1000.0)  # layers are always compared
    model = torch.nn.Sequential(*(layer for _ in range(3) for layer in (torch.nn.Linear(8, 8), Sorted())))
    data = [torch.randn(4, 8) for _ in range(4)]

    def build() -> Any:
        return ew.compile(model.eval(), data[0], "ethos-u85-256", quantize="int8", calibration=data, quiet=True)

    assert build().report.check.note == "" and len(runs) > 2
    delegates = len(runs)
    plant("ethos-u85-256", "2")
    with pytest.raises(MiscompileError, match="layer '2'"):
        build()
    assert len(runs) == 2 * delegates  # those of the file


class Sorted(torch.nn.Module):
    """No operator of an NPU: it divides what is around it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(-1).values


@pytest.mark.parametrize("writes", [False, True])
def test_weights_are_dequantized_once(writes: bool) -> None:
    """... unless something writes to them, and results are those of a first run."""
    exported = ew.compile(net(), calls(1)[0], "xnnpack", quantize="int8", calibration=calls(), quiet=True).exported
    leaves = [[calls(1)[0]]]
    first = GraphInterpreter(exported).run(leaves)
    reference, seen = GraphInterpreter(exported), list[tuple[str, torch.Tensor]]()

    class Writer(Visitor):
        def visit(self, node: Any, value: Any) -> Any:
            if is_dequantize(node) and "per_channel" in str(node.target):
                seen.append((node.name, value))
            return value

    for _ in range(2):
        assert torch.equal(reference.run(leaves, [Writer()])[0][0], first[0][0])
        if writes:
            for _, value in seen:
                value.zero_()
    weights = {name: [value for n, value in seen if n == name] for name, _ in seen}
    assert weights and all((a is b) is not writes for a, b in weights.values())


@pytest.mark.parametrize(("dtype", "elements", "finite"), [
    ("float32", [1.0, -2.0], True), ("float16", [60000.0] * 9, True), ("float32", [3e38] * 9, True),
    ("float32", [1.0, np.inf], False), ("float16", [np.inf, -np.inf], False), ("float32", [np.nan, 0.0], False),
    ("float32", [], True),
])  # fmt: skip
def test_overflowing_sums_of_finite_elements_are_finite(dtype: str, elements: list[float], finite: bool) -> None:
    assert is_finite(torch.tensor(elements, dtype=getattr(torch, dtype))) is finite


@pytest.mark.parametrize(("distance", "called"), [(1.5, "faulty_layer"), (3.0, "locate")])
def test_accumulated_errors_of_a_chaotic_network_are_judged_by_its_layers(
    distance: float, called: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output is beyond the sampled bound of rounding, which is as large as the output itself."""
    asked: list[str] = []
    for name in ("faulty_layer", "locate"):
        monkeypatch.setattr(self_check, name, lambda *given, name=name: asked.append(name))
    output = OutputDeviation(np.ones(4), distance=distance, allowed=1.0, discrete=False)
    assert self_check._explain_or_raise(None, [], [], [output])
    assert asked == [called]


class Quotient(torch.nn.Module):
    """Divides by what may be rounded to zero: both 0 / 0 and x / 0 occur in its integers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).relu()
        return torch.relu(y[:, :4] / (y[:, 4:] + 1e-5))


@pytest.mark.parametrize("target", ["ethos-u55-128", pytest.param("sm8650", marks=pytest.mark.slow)])
def test_quotients_whose_divisor_is_rounded_to_zero_are_not_compared(target: str) -> None:
    model, data = Quotient().eval(), [torch.randn(64, 8) * 20 for _ in range(4)]
    result = ew.compile(model, data[0], target, quantize="int8", calibration=data, quiet=True)
    assert "every layer is within its own rounding" in str(result.report.check)


class _MeanOfTokens(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(x).mean(1)


def test_tokens_that_are_alike_have_the_same_rounding_error() -> None:
    """One row is much larger, so that one scale for all rounds the others coarsely, and all of them alike."""
    torch.manual_seed(0)
    tokens = torch.randn(1, 1, 32).repeat(1, 256, 1)
    tokens[:, 0] *= 30
    result = ew.compile(_MeanOfTokens().eval(), (tokens,), "xnnpack", quantize="dynamic", calibration=[(tokens,)])
    assert result.report.check is not None and result.report.check.inputs and not result.report.check.skipped


class Large(torch.nn.Module):
    """The results of ``a`` exceed half precision, those of the model do not."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        torch.nn.init.constant_(self.a.weight, 2000.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x))) / 1e4


@pytest.mark.parametrize("target", ["sm8550", "e9955"])
def test_an_overflow_of_half_precision_is_no_miscompile(target: str) -> None:
    with pytest.raises(HalfOverflowError, match=r"layer 'a' \(.*must stay within 65,504.*; got 144,000") as caught:
        ew.compile(Large().eval(), (torch.full((2, 8), 9.0),), target)
    assert caught.value.module == "a" and "Scale the model" in str(caught.value)


class RootMeanSquare(torch.nn.Module):
    """The squares inside the norm exceed half precision; what it reads and returns does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)


def test_an_overflow_on_the_way_to_a_finite_result_names_the_operator() -> None:
    with pytest.raises(HalfOverflowError, match=r"must stay within 65,504.*; got 810,000 \(result of mul\)"):
        ew.compile(RootMeanSquare().eval(), (torch.full((2, 8), 900.0),), "e9955")


@pytest.mark.parametrize(
    ("scale", "error", "seen"),
    [(1.0, MiscompileError, "-?[0-9.]+ dB"), (3000.0, HalfOverflowError, "infinity or NaN, probably because sums")],
)
def test_a_nan_is_an_overflow_only_if_sums_inside_the_layer_can_overflow(
    scale: float, error: type[EdgewrightError], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect is the same; the large products cancel, so that no result of the graph is large."""
    right = EnnPartitioner.lower

    def wrong(self: Any, group: Graph) -> Any:
        for op in group.ops:
            if op.args.get("weight") is not None:
                weight = op.args["weight"]
                op.args["weight"] = replace(weight, data=np.full_like(weight.data, np.nan))
        return right(self, group)

    monkeypatch.setattr(EnnPartitioner, "lower", wrong)
    model = torch.nn.Linear(8, 8, bias=False)
    model.weight.data = scale * torch.tensor([1.0, -1.0]).repeat(8, 4)
    with pytest.raises(error, match=f"; got {seen}"):
        ew.compile(model.eval(), (torch.full((2, 8), 9.0),), "e9955")


class InPlace(torch.nn.Module):
    """Arithmetic in place, which the quantizer leaves in floating point and Exynos stores in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.fc(y.mul_(0.9).add_(x))


def test_arithmetic_in_place_rounds_too() -> None:
    torch.manual_seed(0)
    network, inputs = InPlace().eval(), [(torch.randn(2, 4), torch.randn(2, 4)) for _ in range(8)]
    result = ew.compile(network, inputs[0], "e9955", quantize="a16w16", calibration=inputs, quiet=True)
    assert not result.report.check.skipped
