"""Random programs of nested branches and loops over 2x3 tensors, as Python source."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

_EXPRESSIONS = (
    "({0} + {1})",
    "({0} * 0.5 - {1})",
    "{0}.sin()",
    "{0}.reshape(3, 2).reshape(2, 3)",
    "({0}.sum(1, keepdim=True) + {1})",
    "{0}.t().reshape(2, 3)",
    "torch.maximum({0}, {1})",
)


class Writer:
    """Writes a function of ``x`` and ``y``. Results are copied where torch.export asks for it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = ["def function(x, y):"]
        self.count = 0

    def function(self) -> Callable[..., Any]:
        names = self.block(["x", "y"], 2, "    ")
        results = self.random.sample(names, min(3, len(names)))
        self.lines.append(f"    return {', '.join(f'{name} + 0' for name in results)},")
        space: dict[str, Any] = {"torch": torch, "while_loop": while_loop, "scan": scan, "map_over": map_over}
        exec("\n".join(self.lines), space)
        made: Callable[..., Any] = space["function"]
        return made

    def expression(self, names: list[str], depth: int) -> str:
        if depth == 0 or self.random.random() < 0.2:
            return self.random.choice(names)
        parts = [self.expression(names, depth - 1) for _ in range(2)]
        return self.random.choice(_EXPRESSIONS).format(*parts)

    def block(self, names: list[str], depth: int, indent: str) -> list[str]:
        """Some statements; the names that are known after them."""
        kinds = [self.assign, self.assign, self.cond, self.loop, self.scan, self.map] if depth else [self.assign]
        for _ in range(self.random.randint(1, 3)):
            self.count += 1
            names = [*names, *self.random.choice(kinds)(f"v{self.count}", names, depth, indent)]
        return names

    def assign(self, name: str, names: list[str], depth: int, indent: str) -> list[str]:
        self.lines.append(f"{indent}{name} = {self.expression(names, 3)} * 1")
        return [name]

    def inner(self, header: str, names: list[str], depth: int, indent: str, results: str) -> None:
        """A nested function; ``{}`` in its results stand for expressions."""
        self.lines.append(f"{indent}def {header}:")
        known = self.block(names, depth - 1, indent + "    ")
        made = [self.expression(known, 2) for _ in range(results.count("{}"))]
        self.lines.append(f"{indent}    return {results.format(*made)}")

    def cond(self, name: str, names: list[str], depth: int, indent: str) -> list[str]:
        for branch in ("yes", "no"):
            self.inner(f"{branch}_{name}(*_)", names, depth, indent, "{} * 1, {} + 0")
        test = f"{self.random.choice(names)}.sum() > {self.random.uniform(-1, 1):.2f}"
        self.lines.append(f"{indent}{name}, {name}b = torch.cond({test}, yes_{name}, no_{name}, ())")
        return [name, f"{name}b"]

    def loop(self, name: str, names: list[str], depth: int, indent: str) -> list[str]:
        a, b = f"a_{name}", f"b_{name}"
        one, other = self.random.choice([(b, a), ("{}", a), (b, "{}"), ("{}", "{}")])
        results = f"i + 1, ({one} * 1).clamp(-9, 9), ({other} * 1).clamp(-9, 9)"
        self.inner(f"body_{name}(i, {a}, {b})", [*names, a, b], depth, indent, results)
        initial = f"(torch.tensor(0), {self.random.choice(names)} * 1, {self.random.choice(names)} + 0)"
        rounds = f"lambda i, a, b: i < {self.random.randint(0, 3)}"
        self.lines.append(f"{indent}_, {name}, {name}b = while_loop({rounds}, body_{name}, {initial})")
        return [name, f"{name}b"]

    def scan(self, name: str, names: list[str], depth: int, indent: str) -> list[str]:
        c, x = f"c_{name}", f"x_{name}"
        self.inner(f"step_{name}({c}, {x})", [*names, c, x], depth, indent, "{}.clamp(-9, 9) * 1, {} * 1")
        carried, stacked = f"{self.random.choice(names)} * 1", self.stack(names)
        self.lines.append(f"{indent}{name}, {name}b = scan(step_{name}, {carried}, {stacked})")
        self.lines.append(f"{indent}{name}b = {name}b.sum(0)")
        return [name, f"{name}b"]

    def map(self, name: str, names: list[str], depth: int, indent: str) -> list[str]:
        self.inner(f"each_{name}(x_{name})", [*names, f"x_{name}"], depth, indent, "{} * 1")
        self.lines.append(f"{indent}{name} = map_over(each_{name}, {self.stack(names)}).sum(0)")
        return [name]

    def stack(self, names: list[str]) -> str:
        return f"torch.stack([{', '.join(self.random.choice(names) for _ in range(3))}])"
