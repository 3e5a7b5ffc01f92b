"""Caches of quantized models: written and read inside the delegate, and held as integers of one scale."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewright as ew
from edgewright.backends.qualcomm import (
    QnnPartitioner,
    QnnQuantizer,
    QuantDtype,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.backends.qualcomm.export_utils import QnnConfig, build_executorch_binary
from edgewright.errors import UsageError
from edgewright.formats.pte_reader import read_program
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.program.memory import MemoryPlanningPass
from edgewright.quantize.state import functionalize_state_writes, integer_state
from edgewright.runtime import Runtime
from tests.backends.qualcomm.lowered import quantize, ratio

WIDTH, LENGTH = 16, 6
SPECS = generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(use_fp16=False))
TOKENS = torch.randn(5, 1, 1, WIDTH, generator=torch.Generator().manual_seed(3))
STEPS = [(token, torch.tensor([place])) for place, token in enumerate(TOKENS)]
LAST = torch.tensor([LENGTH - 1])
Update = Callable[["Cached", torch.Tensor, torch.Tensor], torch.Tensor]


class Cached(nn.Module):
    """A token's key goes to a cache, and all of it is weighed. ``update``: how; it gives what is read."""

    def __init__(self, update: Update, persistent: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.out, self.update = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), update
        self.register_buffer("cache", torch.zeros(1, LENGTH, WIDTH), persistent=persistent)

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return self.out(self.update(self, self.fc(x), place)).sum(1)


def copied(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    return m.cache.index_copy_(1, place, k)


def put(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    m.cache[:, place] = k
    return m.cache


def shifted(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    full = torch.cat([m.cache[:, 1:], k], 1)
    m.cache.copy_(full)
    return m.cache


def before(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    full = torch.cat([m.cache, k], 1)
    m.cache.index_copy_(1, place, k)
    return full


def twice(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    m.cache.index_copy_(1, place, k)
    m.cache.index_copy_(1, LAST, k)
    return m.cache


def twice_apart(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    m.cache.index_copy_(1, place, k)
    old = m.out(m.cache)
    m.cache.index_copy_(1, LAST, k)
    return torch.cat([old, m.cache], 1)


def from_below(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    return m.cache.index_copy_(-2, place, k)


def sliced(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    m.cache[:, :-1] = m.cache[:, 1:].clone()
    m.cache[:, -1:] = k
    return m.cache


def narrowed(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    m.cache.index_copy_(1, place, k)
    last = m.cache.narrow(1, LENGTH - 1, 1)
    last.copy_(k)
    return torch.cat([last, m.cache], 1)


VIEWED = (sliced, narrowed)
UPDATES = (copied, put, shifted, before, twice, twice_apart, from_below, *VIEWED)


def quantized(update: Update, scheme: str = "8a8w", persistent: bool = True) -> Any:
    made = quantize(Cached(update, persistent).eval(), STEPS[0], QuantDtype[f"use_{scheme}"], STEPS)
    made.cache.zero_()
    return made


def lowered(model: nn.Module, **options: Any) -> tuple[bytes, QnnPartitioner]:
    partitioner = QnnPartitioner(SPECS, simulate_only=True, **options)
    manager = to_edge_transform_and_lower(torch.export.export(model, STEPS[0]), partitioner=[partitioner])
    return bytes(manager.to_executorch().buffer), partitioner


def states(program: Any) -> list[str]:
    """The dtypes of what is copied to state at the end."""
    plan = program.execution_plan[0]
    names = [operator.name for operator in plan.operators]
    calls = [i for i in plan.chains[0].instructions if hasattr(i, "op_index") and names[i.op_index] == "aten::copy_"]
    return [{0: "uint8", 6: "float32", 27: "uint16"}[plan.values[c.args[0]].scalar_type] for c in calls]


@pytest.mark.sample(2)
@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
@pytest.mark.parametrize("update", UPDATES)
def test_a_cache_is_held_as_integers_and_the_model_says_the_same(update: Update, scheme: str) -> None:
    """In one delegate, token by token: beside the quantized model and the real one."""
    chosen, real = quantized(update, scheme), Cached(update).eval()
    file, partitioner = lowered(chosen)
    program = read_program(file)
    assert not partitioner.reports["forward"].rejected and len(program.execution_plan[0].delegates) == 1
    assert states(program) == ["uint8" if scheme == "8a8w" else "uint16"]
    method = Runtime.get().load_program(file).load_method("forward")
    for token, place in STEPS:
        (found,) = method.execute([token.numpy(), place.numpy()])
        with torch.no_grad():
            said = [ratio(m(token, place), torch.from_numpy(np.asarray(found))) for m in (chosen, real)]
        assert said[0] > 35 and said[1] > (30 if scheme == "8a8w" else 45)


def test_state_that_is_not_saved_is_held_the_same_way() -> None:
    file, _ = lowered(quantized(copied, persistent=False))
    assert states(read_program(file)) == ["uint8"]


def test_state_stays_float32_on_request_with_the_same_results() -> None:
    file, partitioner = lowered(quantized(copied), integer_state=False)
    assert states(read_program(file)) == ["float32"] and not partitioner.reports["forward"].rejected
    method, chosen = Runtime.get().load_program(file).load_method("forward"), quantized(copied)
    for token, place in STEPS:
        (found,) = method.execute([token.numpy(), place.numpy()])
        with torch.no_grad():
            assert ratio(chosen(token, place), torch.from_numpy(np.asarray(found))) > 35


def test_state_that_is_not_quantized_stays_real() -> None:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    exported = torch.export.export(Cached(copied).eval(), STEPS[0])
    assert integer_state(exported) is exported
    quantizer = QnnQuantizer("SM8650")
    quantizer.add_discard_ops([torch.ops.aten.index_put.default])
    prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
    prepared(*STEPS[0])
    file, partitioner = lowered(convert_pt2e(prepared))
    assert states(read_program(file)) == ["float32"]
    assert "index_put" in {v.operator for v in partitioner.reports["forward"].rejected}


@pytest.mark.sample(3)
@pytest.mark.parametrize("update", UPDATES)
def test_writes_with_a_result_mean_the_same(update: Update) -> None:
    model = Cached(update).eval()
    module = torch.export.export(model, STEPS[0]).module(check_guards=False)
    made = functionalize_state_writes(torch.export.export(Cached(update).eval(), STEPS[0]).module(check_guards=False))
    left = [n for n in made.graph.nodes if str(n.target).startswith(("aten.index_copy_", "aten.index_put_"))]
    assert update in VIEWED or not left
    for step in STEPS:
        with torch.no_grad():
            torch.testing.assert_close(made(*step), module(*step), rtol=0, atol=0)
        torch.testing.assert_close(made.cache, module.cache, rtol=0, atol=0)


class Adding(nn.Module):
    """State that is added to, not written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4, WIDTH))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        self.total.index_put_((place,), x[0], accumulate=True)
        return self.total * 2


@pytest.mark.parametrize("update", VIEWED)
def test_writes_through_views_are_kept_by_quantizers_of_all_backends(update: Update) -> None:
    """Who writes to a view of state must not write to what an observer, or a conversion, gave."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from edgewright.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(Cached(update).eval(), STEPS[0]).module(check_guards=False), quantizer)
    real: Any = Cached(update).eval()
    with torch.no_grad():
        for step in STEPS:
            torch.testing.assert_close(prepared(*step), real(*step))
            torch.testing.assert_close(prepared.cache, real.cache)
        made: Any = convert_pt2e(prepared)
        for cache in (made.cache, real.cache):
            cache.zero_()
        assert min(ratio(real(*step), made(*step)) for step in STEPS) > 25


def test_what_adds_to_state_is_left_alone() -> None:
    module = torch.export.export(Adding(), STEPS[0]).module(check_guards=False)
    kinds = [str(n.target) for n in functionalize_state_writes(module).graph.nodes]
    assert "aten.index_put_.default" in kinds and "aten.index_put.default" not in kinds


def mixed(m: Cached, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """A write, a sum in place, and a write again."""
    m.cache.index_copy_(1, place, k)
    m.cache.add_(1.0)
    return m.cache.index_copy_(1, place + 1, k) * 1.0


def test_writes_among_others_keep_their_order() -> None:
    made, wanted = (torch.export.export(Cached(mixed).eval(), STEPS[0]).module(check_guards=False) for _ in range(2))
    functionalize_state_writes(made)
    for step in STEPS:
        with torch.no_grad():
            torch.testing.assert_close(made(*step), wanted(*step), rtol=0, atol=0)
        torch.testing.assert_close(made.cache, wanted.cache, rtol=0, atol=0)


class Average(nn.Module):
    """Two writes in place, one after the other: a moving average, as a norm of a stream keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        self.average.mul_(0.5).add_(x.abs().mean((0, 1)))
        return x / (self.average + 1e-5) + self.average[place]


@pytest.mark.parametrize("model", [Average, Adding])
def test_a_write_in_place_is_read_by_what_follows(model: type[nn.Module]) -> None:
    network: Any = model().eval()
    steps = STEPS if model is Average else [(torch.rand(1, 1, WIDTH), torch.tensor([n % 4])) for n in range(5)]
    result = ew.compile(copy.deepcopy(network), steps[0], "sm8650", quantize="a16w8", calibration=steps, evaluate=0,
                        quiet=True, simulate=True)  # fmt: skip
    method = result.method()
    with torch.no_grad():
        assert min(ratio(network(*step), torch.as_tensor(method.execute(list(step))[0])) for step in steps) > 40


def shared(scales: tuple[float, float], **options: Any) -> Any:
    """Two methods that write one cache, each calibrated on tokens of its own size."""
    exported = {}
    for name, scale in zip(("first", "second"), scales, strict=True):
        steps = [(token * scale, place) for token, place in STEPS]
        made = quantize(Cached(copied).eval(), STEPS[0], QuantDtype.use_8a8w, steps)
        made.cache.zero_()
        exported[name] = torch.export.export(made, STEPS[0])
    partitioners = {name: [QnnPartitioner(SPECS, simulate_only=True, **options)] for name in exported}
    manager = to_edge_transform_and_lower(exported, partitioner=partitioners)
    return manager.to_executorch(
        ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    )


def test_methods_that_share_a_cache_must_hold_it_the_same_way() -> None:
    assert shared((1.0, 1.0)).buffer
    with pytest.raises(UsageError, match=r"state 'cache': must have the same encoding .* uint8 of scale") as raised:
        shared((1.0, 2.0))
    assert "integer_state=False" in str(raised.value)
    assert shared((1.0, 2.0), integer_state=False).buffer


def test_scripts_that_calibrate_start_with_an_empty_cache(tmp_path: Path) -> None:
    model, real = Cached(copied).eval(), Cached(copied).eval()
    config = QnnConfig("SM8650")
    build_executorch_binary(model, config, str(tmp_path / "m"), STEPS, QuantDtype.use_8a8w)
    (found,) = Runtime.get().load_program(tmp_path / "m.pte").load_method("forward").execute(
        [x.numpy() for x in STEPS[0]]
    )  # fmt: skip
    with torch.no_grad():
        assert ratio(real(*STEPS[0]), torch.from_numpy(np.asarray(found))) > 30
