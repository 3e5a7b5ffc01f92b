"""150 architectures of timm: of each of its modules the smallest, then the smallest of another kind, and so on."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from tests.zoo.network import ModelError, Network, TensorOutputs, count_parameters, draw_calls, images, run_eager
from tests.zoo.torchvision_models import library

COUNT = 150
SIZES = (64, 96, 128, 112)  # before the model's own; 112 for patches of 14
# Not instantiated while choosing: variants of architectures that are listed smaller.
_LARGE = re.compile(
    r"large|huge|giant|gigantic|enormous|xlarge|_xl|so400m|so150m|_3b|_1b|_7b|_h\b|_384|_448|_512|_h_|test_"
)


def _library() -> Any:
    library()  # timm imports torchvision
    import timm

    return timm


def choose() -> dict[str, int]:
    timm = _library()

    by_module = {m: [n for n in timm.list_models(module=m) if not _LARGE.search(n)] for m in timm.list_modules()}
    ranked = {module: _ranked(names) for module, names in by_module.items() if names}
    chosen: dict[str, int] = {}
    while len(chosen) < COUNT and any(ranked.values()):
        for names in ranked.values():
            if names and len(chosen) < COUNT:
                name, size = names.pop(0)
                chosen[name] = size
    return chosen


def _ranked(names: list[str]) -> list[tuple[str, int]]:
    """The smallest of each kind, smallest first. A kind: the name up to its first digit or underscore."""
    sizes = {name: size for name in names if (size := _parameters(name)) is not None}
    order = sorted(sizes.items(), key=lambda item: (item[1], item[0]))
    kinds: set[str] = set()
    first, rest = [], []
    for name, size in order:
        kind = re.split(r"[\d_]", name)[0]
        (rest if kind in kinds else first).append((name, size))
        kinds.add(kind)
    return first + rest


def _parameters(name: str) -> int | None:
    timm = _library()

    try:
        return count_parameters(partial(timm.create_model, name))
    except Exception:  # what cannot be made without data is not chosen
        return None


def build(name: str) -> Network:
    timm = _library()

    own = timm.get_pretrained_cfg(name).input_size[-1] if timm.get_pretrained_cfg(name) else 224
    failures = []
    for size in (*(s for s in SIZES if s < own), own):
        for options in ({"img_size": size}, {}):
            try:
                return _at(timm, name, size, options)
            except Exception as error:
                failures.append(f"{size}: {type(error).__name__}: {error}")
    raise ModelError(f"takes none of the sizes: {'; '.join(failures)}"[:500])


def _at(timm: Any, name: str, size: int, options: dict[str, Any]) -> Network:
    model = TensorOutputs(timm.create_model(name, **options).eval())
    calls = draw_calls(name, images(1, 3, size, size))
    run_eager(model, calls[0])
    return Network(model, calls, f"{size}x{size}")
