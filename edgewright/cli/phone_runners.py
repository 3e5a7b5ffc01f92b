"""ExecuTorch's runners for phones besides Qualcomm's: ``executor_runner`` for XNNPACK and portable kernels, and
``enn_executor_runner`` for Exynos. They need no library of the SDK: the phone has what they load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgewright.backends.qualcomm.phone import BACKEND as QNN
from edgewright.backends.qualcomm.phone import OUTPUTS, Phone
from edgewright.backends.samsung.target import EnnTarget
from edgewright.errors import UsageError
from edgewright.formats.schema import Program

XNNPACK, ENN, ETHOS_U = "XnnpackBackend", "EnnBackend", "EthosUBackend"
_TMP = PurePosixPath("/data/local/tmp")


@dataclass(frozen=True)
class PhoneRunner:
    """A runner. ``places``: where Android builds have it; ``arguments``: of a program and its raw input files;
    ``check_soc``: raises if a phone's SoC is not the program's."""

    name: str
    places: tuple[str, ...]
    folder: PurePosixPath
    remedy: str
    arguments: Callable[[str, Sequence[str]], list[str]]
    repeats: str  # the flag with the number of executions; "" if there is none
    check_soc: Callable[[Program, Phone], None]

    def command(self, folder: PurePosixPath, model: str, inputs: Sequence[str], repeat: int = 1) -> str:
        """The shell command that runs a program on the phone; its outputs are in ``OUTPUTS``."""
        if repeat > 1 and not self.repeats:
            raise UsageError("--repeat", f"{self.name} runs a program once", value=repeat, remedy="Leave it out.")
        repeats = [self.repeats, str(repeat)] if repeat > 1 else []
        quoted = shlex.quote(str(folder))
        return (
            f"cd {quoted} && rm -rf {OUTPUTS} && mkdir -p {OUTPUTS} && chmod +x {self.name}"
            f" && export LD_LIBRARY_PATH={quoted}"
            f" && {shlex.join([f'./{self.name}', *self.arguments(model, inputs), *repeats])}"
        )

    def check(self, program: Program, phone: Phone, *, any_soc: bool) -> None:
        if not any_soc:
            self.check_soc(program, phone)


def _xnnpack_arguments(model: str, inputs: Sequence[str]) -> list[str]:
    given = ["--inputs", ",".join(inputs)] if inputs else []
    return ["--model_path", f"./{model}", *given, "--output_file", f"./{OUTPUTS}/output"]


def _enn_arguments(model: str, inputs: Sequence[str]) -> list[str]:
    given = ["--input", " ".join(inputs)] if inputs else []
    return ["--model", f"./{model}", *given, "--output_path", f"./{OUTPUTS}"]


def _check_exynos(program: Program, phone: Phone) -> None:
    """Raise unless the phone has the Exynos that the program was compiled for, as far as Android tells."""
    chip = _chip(program)
    vendor, soc = phone.adb.property("ro.soc.manufacturer"), phone.soc
    if vendor and vendor.lower() not in ("samsung", "slsi"):
        remedy = "Plug in a phone with an Exynos, or pass --any-soc to try anyway."
        raise UsageError(
            "program", "was compiled for an Exynos, and this phone's SoC is by", value=vendor, remedy=remedy
        )
    number = re.search(r"9\d{3}", soc)
    if number is not None and number[0] not in chip:
        remedy = "Compile it for this chip, or pass --any-soc to try anyway."
        raise UsageError("program", f"was compiled for {chip}, and this phone is", value=soc, remedy=remedy)


def _chip(program: Program) -> str:
    delegates = [d for plan in program.execution_plan for d in plan.delegates if d.id == ENN]
    targets = [EnnTarget.of(d.compile_specs or ()) for d in delegates]
    if any(target.simulate_only for target in targets):
        remedy = "Compile it with AI LiteCore installed: edgewright doctor --target e9955."
        raise UsageError("program", "is for this machine only", remedy=remedy)
    chips = sorted({target.chipset.name for target in targets})
    if len(chips) > 1:
        raise UsageError("program", "must be for one chip", value=", ".join(chips))
    return chips[0]


RUNNERS = {
    XNNPACK: PhoneRunner(
        "executor_runner",
        ("executor_runner", "examples/portable/executor_runner/executor_runner",
         "backends/xnnpack/xnn_executor_runner", "xnn_executor_runner"),
        _TMP / "executorch_xnnpack",
        "Build it: cmake -DANDROID_ABI=arm64-v8a -DEXECUTORCH_BUILD_XNNPACK=ON "
        "-DEXECUTORCH_BUILD_EXECUTOR_RUNNER=ON with the NDK's toolchain file; name the folder: -b cmake-out-android.",
        _xnnpack_arguments,
        "--num_executions",
        lambda program, phone: None,
    ),
    ENN: PhoneRunner(
        "enn_executor_runner",
        ("backends/samsung/enn_executor_runner", "examples/samsung/enn_executor_runner", "enn_executor_runner"),
        _TMP / "executorch_exynos",
        "Build it (backends/samsung/build.sh of ExecuTorch) and name the folder: -b build_samsung_android.",
        _enn_arguments,
        "",
        _check_exynos,
    ),
}  # fmt: skip


def find_kind(program: Program, name: str) -> PhoneRunner | None:
    """The runner that a program's delegates need; None for Qualcomm's, which needs libraries of its SDK too."""
    backends = {delegate.id for plan in program.execution_plan for delegate in plan.delegates}
    if QNN in backends:
        return None
    special = backends - {XNNPACK}
    if not special:
        return RUNNERS[XNNPACK]  # it has the portable kernels too
    if special == {ENN}:
        _chip(program)
        return RUNNERS[ENN]
    remedy = "Compile it for a phone: --target xnnpack, sm8550 or e9955."
    if ETHOS_U in backends:
        remedy = "edgewright device fvp runs programs for Ethos-U on Arm's virtual platform."
    raise UsageError(name, "must have delegates that phones run", value=", ".join(sorted(special)), remedy=remedy)
