"""Names of the zoo: ``torchvision/resnet18``, ``timm/vit_tiny_patch16_224``, ``transformers/bert``, ``module:factory``.

``name@2`` keeps two of equal blocks. ``models.txt`` lists them with their numbers of parameters, smallest first;
``python -m tests.zoo choose`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("models.txt")
SOURCES = ("torchvision", "timm", "transformers")


def listed(globs: Iterable[str] = ()) -> list[str]:
    """Names in the order of ``models.txt``; those that match one of ``globs``, if there are any. A glob with a colon
    names a factory."""
    wanted = list(globs)
    factories = [g for g in wanted if ":" in g]
    patterns = [g for g in wanted if ":" not in g]
    if wanted and not patterns:
        return factories
    names = [line.split()[0] for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return factories + [n for n in names if not patterns or any(fnmatch(n, g) for g in patterns)]


def build(name: str) -> Any:
    """The ``Network`` of a name, with its weights drawn."""
    import torch

    from tests.zoo.network import ModelError, seed_of
    from tests.zoo.reduced import MARK, shorten
    from tests.zoo.weights import randomize, set_norm_statistics

    torch.manual_seed(seed_of(name))
    try:
        if ":" in name:
            module, _, factory = name.partition(":")
            return getattr(import_module(module), factory)()
        source, _, rest = name.partition("/")
        rest, mark, count = rest.partition(MARK)
        network = import_module(f"tests.zoo.{source}_models").build(rest)
        if mark:
            network.note = f"{network.note}, {shorten(network.module, int(count))}"
        randomize(network.module, seed_of(name))
        set_norm_statistics(network.module, network.calls)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        ) from error
    return network


def choose() -> Iterator[str]:
    """Lines of ``models.txt``."""
    from tests.zoo import reduced

    sizes: dict[str, int] = {}
    for source in SOURCES:
        made = import_module(f"tests.zoo.{source}_models").choose()
        sizes.update({f"{source}/{name}": size for name, size in made.items()})
    yield "# name, parameters; written by `python -m tests.zoo choose`"
    for name, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        yield f"{name} {size}"
    yield "# with fewer of their equal blocks"
    yield from reduced.NAMES
