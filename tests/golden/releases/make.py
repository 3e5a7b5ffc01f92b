"""Makes the golden files of this release: ``python -m tests.golden.releases.make``.

A file of each kind that the release writes, with inputs and the outputs that it gave. They are kept for ever, and every
later release must read them (``tests/interop/test_releases.py``). Run it once, just before a release; a folder that is
there already is not written again, unless ``--again`` says that it was never released.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["EDGEWRIGHT_QNN"] = "twin"  # what every machine can run

import numpy as np
import torch
from torch import nn

import edgewright as ew
from edgewright import ExecutorchBackendConfig
from edgewright._version import VERSION
from edgewright.cli import main as cli
from edgewright.cli.outputs import npz_bytes
from edgewright.runtime import Profile, Runtime

RELEASES = Path(__file__).parent
# Integers and what is made of them are the same everywhere; real sums depend on the order of their terms.
EXACT, REAL = 0.0, 1e-5


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1))


class Counting(nn.Module):
    """With state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


def images(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(1, 3, 8, 8, generator=generator) for _ in range(count)]


def network() -> nn.Module:
    torch.manual_seed(1)
    return Network().eval()


def target(name: str, quantize: str | None = None, **options: Any) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        calibration = images(4) if quantize else None
        ew.compile(network(), images(1)[0], target=name, quantize=quantize, calibration=calibration, quiet=True,
                   **options).save(path)  # fmt: skip

    return make


def portable(model: Callable[[], nn.Module], example: torch.Tensor, **options: Any) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        shapes = options.pop("dynamic_shapes", None)
        exported = torch.export.export(model(), (example,), dynamic_shapes=shapes)
        program = ew.to_edge(exported).to_executorch(ExecutorchBackendConfig(**options))
        program.save(str(path))
        program.write_tensor_data_to_file(str(path.parent))

    return make


FOURS = [torch.arange(4.0), torch.ones(4), torch.full((4,), -2.0)]
ROWS = [torch.linspace(-1, 1, rows * 6).reshape(rows, 6) for rows in (2, 5, 1)]


def linear() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3)).eval()


# By name: what makes it, the calls, how far outputs may be from those written down, and files of data it needs.
FILES: dict[str, tuple[Callable[[Path], None], Sequence[torch.Tensor], float, tuple[str, ...]]] = {
    "portable": (portable(network, images(1)[0]), images(2), REAL, ()),
    "portable_state": (portable(Counting, FOURS[0]), FOURS, EXACT, ()),
    "portable_dynamic": (
        portable(linear, ROWS[1], dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=8)},)), ROWS, REAL, ()),
    "portable_external": (portable(linear, ROWS[1], external_constants=lambda node: "weights"), ROWS[1:2], REAL,
                          ("weights.ptd",)),
    "xnnpack": (target("xnnpack"), images(2), REAL, ()),
    "xnnpack_int8": (target("xnnpack", "int8"), images(2), EXACT, ()),
    "ethos_u55": (target("ethos-u55-128", "int8", simulate=False), images(2), EXACT, ()),
    "ethos_u85": (target("ethos-u85-256", "int8", simulate=False), images(2), EXACT, ()),
    "qualcomm": (target("sm8650", "int8", simulate=False), images(2), EXACT, ()),
    "qualcomm_simulated": (target("sm8650", "int8", simulate=True), images(2), EXACT, ()),
    "samsung_simulated": (target("e9955", "int8", simulate=True), images(2), EXACT, ()),
    "nxp_simulated": (target("imxrt700", "int8", simulate=True), images(2), EXACT, ()),
}  # fmt: skip


def make_program(folder: Path, name: str) -> dict[str, Any]:
    """A program, and what it gives, call after call."""
    make, calls, tolerance, data = FILES[name]
    make(folder / f"{name}.pte")
    method = Runtime(threads=1).load_program(folder / f"{name}.pte", [folder / d for d in data]).load_method()
    arrays = {}
    for number, x in enumerate(calls):
        arrays[f"{number}.in"], arrays[f"{number}.out"] = x.numpy(), method.execute([x.numpy()])[0]
    (folder / f"{name}.npz").write_bytes(npz_bytes(arrays, compress=True))
    return {
        "calls": len(calls),
        "tolerance": tolerance,
        "data": list(data),
        "delegates": list(method.metadata.delegates),
    }


def make_bundle(folder: Path) -> None:
    np.savez(folder / "x.npz", images(1)[0].numpy())
    arguments = ["bundle", folder / "xnnpack_int8.pte", "--inputs", folder / "x.npz", "-o", folder / "bundled.bpte"]
    if cli([str(a) for a in [*arguments, "--json"]]):
        raise SystemExit("edgewright bundle failed")
    (folder / "x.npz").unlink()


def make_profile(folder: Path) -> dict[str, Any]:
    profile = Profile()
    method = Runtime(threads=1).load_program(folder / "portable.pte").load_method()
    method.execute([images(1)[0].numpy()], profile=profile)
    profile.save_etdump(folder / "profile.etdp")
    events = [event.profile_event for event in profile.etdump().run_data[0].events]
    return {"events": [[e.name, e.instruction_id, e.start_time, e.end_time] for e in events if e is not None]}


def make(folder: Path) -> None:
    folder.mkdir()
    facts: dict[str, Any] = {"version": VERSION, "programs": {name: make_program(folder, name) for name in FILES}}
    make_bundle(folder)
    facts["profile"] = make_profile(folder)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="write the folder anew: it was never released")
    folder = RELEASES / VERSION
    if parser.parse_args().again:
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise SystemExit(f"{folder} is there already; files of a release are never written again")
    make(folder)


if __name__ == "__main__":
    main()
