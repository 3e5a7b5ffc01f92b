"""Nothing is ignored in silence: every public option of every backend changes the file, the report, what is printed or
logged, or is rejected with a typed error.

The options are found by introspection: arguments with a default of the public functions and classes of a backend's
package, settings of its quantizer, and the options of ``compile``. A new one without an entry in ``flips.py`` is a
failure.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from edgewright.api.compile import Options
from edgewright.backends.registry import in_order
from edgewright.backends.table import OperatorConfig
from edgewright.errors import EdgewrightError
from edgewright.lowering.partition import Partitioner
from edgewright.quantize.quantizer import TableQuantizer
from tests.backends import flip_bench
from tests.backends.flips import ABOUT, BENCHES, COMPILE, EXEMPT, EXEMPT_COMPILE, FLIPS, SETTERS, TARGETS, compiled

SETTING = ("set_", "setup_", "add_", "dump_", "with_", "register_")
BACKENDS = [info.name for info in in_order()]


def optional(function: Any) -> list[str]:
    """The arguments with a default."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is not p.empty and p.kind is not p.VAR_KEYWORD]


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name in dir(kind):
        if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(kind, name)):
            yield name, getattr(kind, name)


def public(backend: str) -> Iterator[tuple[str, Any]]:
    module = import_module(f"edgewright.backends.{backend}")
    for name in module.__all__:
        value = getattr(module, name)
        is_type = isinstance(value, type)
        if callable(value) and not (is_type and issubclass(value, enum.Enum | OperatorConfig)):
            yield f"{backend}.{name}", value


def options(backend: str) -> Iterator[str]:
    for path, value in public(backend):
        yield from (f"{path}.{name}" for name in optional(value))
        if not isinstance(value, type) or issubclass(value, TableQuantizer):
            continue
        for name, method in methods(value):
            if name.startswith(SETTING):
                yield f"{path}.{name}"
            if not issubclass(value, Partitioner):
                yield from (f"{path}.{name}.{argument}" for argument in optional(method))
    for path, value in public(backend):
        if isinstance(value, type) and issubclass(value, TableQuantizer):
            for name, method in methods(value):
                if name.startswith(SETTING):
                    yield f"{path}.{name}()"
                    yield from (f"{path}.{name}.{argument}" for argument in optional(method))


ENTRIES = {f"{path}.{name}" for path, values in FLIPS.items() for name in values}
FOUND = [option for backend in BACKENDS for option in options(backend)]
SETTINGS = [option for option in FOUND if option.endswith("()")]
PLAIN = [option for option in FOUND if not option.endswith("()") and option not in EXEMPT]


def test_every_option_has_an_entry() -> None:
    assert len(FOUND) > 180 and len(set(FOUND)) == len(FOUND)
    assert sorted(set(PLAIN) - ENTRIES) == [] and sorted(ENTRIES - set(PLAIN)) == []
    assert sorted({option.rpartition(".")[2][:-2] for option in SETTINGS} ^ set(SETTERS)) == []
    assert EXEMPT.keys() <= set(FOUND)


def test_every_option_of_compile_has_an_entry() -> None:
    assert sorted(set(Options.__annotations__) ^ {*COMPILE, *EXEMPT_COMPILE}) == []
    assert sorted(set(BACKENDS) ^ set(TARGETS)) == []


def test_a_new_option_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewright.backends import samsung

    def gen_samsung_backend_compile_spec(chipset: str, novelty: bool = False) -> None:
        """As if someone had added an option."""

    monkeypatch.setattr(samsung, "gen_samsung_backend_compile_spec", gen_samsung_backend_compile_spec)
    found = set(options("samsung"))
    assert "samsung.gen_samsung_backend_compile_spec.novelty" in found - ENTRIES - EXEMPT.keys()


@cache
def _plain(path: str, baseline: str = "") -> Any:
    return BENCHES[path]()


def flipped(path: str, name: str) -> None:
    bench, value = BENCHES[path], FLIPS[path][name]
    try:
        changed = bench(**{name: value})
    except EdgewrightError as error:
        flip_bench.require_about(error, name, value, *ABOUT.get(f"{path}.{name}", ()))
        changed = None
    assert changed != baseline(path, name), f"{path}({name}={value!r}) makes no difference"


def baseline(path: str, name: str) -> Any:
    """The same without the option. Where a bench needs another model for it, the default is passed."""
    from edgewright.backends.nxp import CustomDelegationOptions

    needs_default: dict[str, Any] = {
        "integer_state": True, "optimization_level": 3, "custom_delegation_options": CustomDelegationOptions(),
    }  # fmt: skip
    return BENCHES[path](**{name: needs_default[name]}) if name in needs_default else _plain(path)


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", BENCHES)
def test_nothing_differs_without_a_difference(path: str) -> None:
    """Otherwise the others would prove nothing."""
    assert BENCHES[path]() == BENCHES[path]()


@pytest.mark.sample(8)
@pytest.mark.parametrize("option", sorted(set(PLAIN) & ENTRIES))
def test_an_option_makes_a_difference(option: str) -> None:
    path, _, name = option.rpartition(".")
    flipped(path, name)


@cache
def _quantized(backend: str, rolled: bool) -> Any:
    return flip_bench.with_quantizer(backend, lambda quantizer: None, **_model(rolled))


def _model(rolled: bool) -> dict[str, Any]:
    return {"model": flip_bench.Rolled()} if rolled else {}


@pytest.mark.sample(4)
@pytest.mark.parametrize("option", SETTINGS)
def test_a_setting_of_a_quantizer_makes_a_difference(option: str) -> None:
    backend, name = option.partition(".")[0], option.rpartition(".")[2][:-2]
    rolled = name == "set_runtime"
    try:
        changed = flip_bench.with_quantizer(backend, SETTERS[name], **_model(rolled))
    except EdgewrightError as error:
        flip_bench.require_about(error, name, None)
        changed = None
    assert changed != _quantized(backend, rolled), f"{option} makes no difference"


@cache
def _compiled_without(backend: str, option: str) -> Any:
    return compiled(backend, **COMPILE[option][0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("option", COMPILE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_option_of_compile_makes_a_difference(backend: str, option: str) -> None:
    without = _compiled_without(backend, option if COMPILE[option][0] else "samples")
    try:
        changed = compiled(backend, **COMPILE[option][1])
    except EdgewrightError as error:
        flip_bench.require_about(error, option, COMPILE[option][1].get(option))
        changed = None
    assert changed != without, f"compile({option}=...) for {backend} makes no difference"


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_differs_between_equal_compilations(backend: str) -> None:
    assert compiled(backend) == compiled(backend)
    without, _ = COMPILE["quantize"]
    assert compiled(backend, **without) == compiled(backend, **without)


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_differs_between_equal_quantizers(backend: str) -> None:
    for rolled in (False, True):
        assert flip_bench.with_quantizer(backend, lambda quantizer: None, **_model(rolled)) == _quantized(
            backend, rolled
        )
