"""Delta debugging: the smallest spec that still fails. Candidates that do not fit together are passed over."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.compose.builder import Builder
from tests.compose.spec import InvalidSpecError, Spec, Step

Fails = Callable[[Spec], bool]
_PLAIN: dict[str, tuple[Any, ...]] = {
    "limits": (None,), "bias": (False,), "groups": (1,), "dilation": ([1, 1],), "stride": ([1, 1],),
    "padding": ([0, 0, 0, 0],), "kernel": ([1, 1], [3, 3]), "q": ([1.0, 0],), "extra": ([0, 0],), "seed": (0,),
    "zero": (0,), "per_channel": (False,), "flip": (False,), "transposed": (False,), "times": (1,), "value": (0.0,),
    "kind": ("add", "abs"),
}  # fmt: skip
_SIZES = (1, 2, 3, 4, 5, 8, 16, 17, 32)


def shrink(spec: Spec, fails: Fails, new_builder: Callable[[], Builder], budget: int = 600) -> Spec:
    """``fails`` must hold of ``spec``. ``budget``: specs that are tried at most."""
    tried: set[str] = {spec.text()}
    left = budget
    again = True
    while again and left > 0:
        again = False
        for candidate in _candidates(spec, new_builder):
            text = candidate.text()
            if text in tried:
                continue
            tried.add(text)
            left -= 1
            if left <= 0:
                break
            if fails(candidate):
                spec, again = candidate, True
                break
    return spec


def _candidates(spec: Spec, new_builder: Callable[[], Builder]) -> Iterator[Spec]:
    yield from (_without_dead(replace(spec, outputs=[out])) for out in spec.outputs if len(spec.outputs) > 1)
    yield from _earlier_outputs(spec)
    yield from _cuts(spec, new_builder)
    yield from _drops(spec)
    yield from _plainer(spec)
    yield from _smaller(spec)


def _without_dead(spec: Spec) -> Spec:
    """Only what the outputs need."""
    first = len(spec.inputs)
    needed: set[int] = set()
    todo = list(spec.outputs)
    while todo:
        at = todo.pop()
        if at not in needed:
            needed.add(at)
            todo += spec.steps[at - first]["in"] if at >= first else []
    order = sorted(needed)
    new = {old: at for at, old in enumerate(order)}
    inputs = [spec.inputs[i] for i in order if i < first]
    steps = [
        {**spec.steps[i - first], "in": [new[k] for k in spec.steps[i - first]["in"]]} for i in order if i >= first
    ]
    return replace(spec, inputs=inputs, steps=steps, outputs=[new[i] for i in spec.outputs])


def _earlier_outputs(spec: Spec) -> Iterator[Spec]:
    """Values that were inner ones, as the only output."""
    first = len(spec.inputs)
    for at in range(len(spec.steps) - 1):
        yield _without_dead(replace(spec, outputs=[first + at]))


def _cuts(spec: Spec, new_builder: Callable[[], Builder]) -> Iterator[Spec]:
    """A value becomes an input: whatever made it goes."""
    builder = new_builder()
    builder.times = int(spec.options.get("times", 1))
    try:
        for step in (*spec.inputs, *spec.steps):
            builder.input(step) if "op" not in step else builder.apply(step)
    except InvalidSpecError:
        return
    first = len(spec.inputs)
    for at in reversed(range(len(spec.steps))):
        number = first + at
        given = builder.as_input(builder.values[number])
        if given is None or number in spec.outputs:
            continue
        move = lambda i, number=number: 0 if i == number else i + 1  # noqa: E731
        steps = [{**s, "in": [move(i) for i in s["in"]]} for s in spec.steps]
        yield _without_dead(
            replace(spec, inputs=[given, *spec.inputs], steps=steps, outputs=list(map(move, spec.outputs)))
        )


def _drops(spec: Spec) -> Iterator[Spec]:
    """A step goes, and one of its operands, or any earlier value, takes the place of its result."""
    first = len(spec.inputs)
    for at in reversed(range(len(spec.steps))):
        number = first + at
        for instead in dict.fromkeys((*spec.steps[at]["in"], *range(first))):
            move = lambda i, n=number, o=instead: o if i == n else i  # noqa: E731
            steps = [{**s, "in": [move(i) for i in s["in"]]} for s in spec.steps]
            outputs = list(dict.fromkeys(map(move, spec.outputs)))
            if all(o >= first for o in outputs):
                yield _without_dead(replace(spec, steps=steps, outputs=outputs))


def _plainer(spec: Spec) -> Iterator[Spec]:
    """Attributes as they mostly are; fewer operands."""
    for which in ("inputs", "steps"):
        steps: list[Step] = getattr(spec, which)
        for at, step in enumerate(steps):
            for name, plain in _PLAIN.items():
                for value in plain:
                    if name in step and step[name] != value:
                        yield _changed(spec, which, at, {**step, name: value})
            if len(step.get("in", ())) > 2:
                for k in range(len(step["in"])):
                    fewer = step["in"][:k] + step["in"][k + 1 :]
                    yield _without_dead(_changed(spec, which, at, {**step, "in": fewer}))


def _changed(spec: Spec, which: str, at: int, step: Step) -> Spec:
    steps = list(getattr(spec, which))
    steps[at] = step
    return replace(spec, **{which: steps})


def _smaller(spec: Spec) -> Iterator[Spec]:
    """A size becomes smaller wherever it occurs; then each alone."""
    sizes = sorted(set(_numbers([*spec.inputs, *spec.steps])), reverse=True)
    for size in sizes:
        for smaller in dict.fromkeys((*(n for n in _SIZES if n < size), size // 2, size - 1)):
            if 0 < smaller < size:
                yield replace(spec, inputs=_swap(spec.inputs, size, smaller), steps=_swap(spec.steps, size, smaller))
    for which in ("inputs", "steps"):
        for at, step in enumerate(getattr(spec, which)):
            for path in _paths(step):
                yield from _one_number(spec, which, at, step, path)


_KEPT = ("in", "seed", "op", "type", "dims", "dim", "start", "q", "zero", "scale")


def _numbers(tree: Any) -> Iterator[int]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name not in _KEPT:
                yield from _numbers(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from _numbers(item)
    elif isinstance(tree, int) and not isinstance(tree, bool) and tree > 1:
        yield tree


def _swap(tree: Any, old: int, new: int) -> Any:
    if isinstance(tree, dict):
        return {name: value if name in _KEPT else _swap(value, old, new) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_swap(item, old, new) for item in tree]
    return new if isinstance(tree, int) and not isinstance(tree, bool) and tree == old else tree


def _paths(step: Step) -> Iterator[tuple[str, int | None]]:
    for name, value in step.items():
        if name in _KEPT:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            yield name, None
        elif isinstance(value, list):
            yield from ((name, k) for k, n in enumerate(value) if isinstance(n, int) and n > 1)


def _one_number(spec: Spec, which: str, at: int, step: Step, path: tuple[str, int | None]) -> Iterator[Spec]:
    name, k = path
    old = step[name] if k is None else step[name][k]
    for new in dict.fromkeys((1, 2, 3, 4, old // 2, old - 1)):
        if 0 < new < old:
            changed = copy.deepcopy(step)
            if k is None:
                changed[name] = new
            else:
                changed[name][k] = new
            yield _changed(spec, which, at, changed)
