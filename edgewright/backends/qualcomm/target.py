"""Qualcomm targets and the compile spec. Imports neither torch nor Qualcomm's libraries."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.backends.qualcomm.options import (
    FP16,
    HTP_BACKEND,
    KEY,
    BackendOptions,
    HtpInfo,
    HtpOptions,
    OpPackageOptions,
    QnnOptions,
    SocInfo,
    read_options,
    write_options,
)
from edgewright.errors import FormatError, UsageError
from edgewright.hints import not_among


class QcomChipset(enum.IntEnum):
    """SoCs with an HTP, numbered as in QNN."""

    SM8350 = 30
    SM8450 = 36
    SA8295 = 39
    SM8475 = 42
    SM8550 = 43
    SXR1230P = 45
    SSG2115P = 46
    SA8255 = 52
    SXR2230P = 53
    SM8650 = 57
    SSG2125P = 58
    SC8380XP = 60
    SM8750 = 69
    SA8797 = 72
    SXR2330P = 75
    QCS9100 = 77
    SM8850 = 87
    QCM6490 = 93
    SAR2230P = 95
    SW6100 = 96
    SM8845 = 97


@dataclass(frozen=True)
class Htp:
    """An HTP: Hexagon version, MiB of VTCM, and whether it supports fp16."""

    arch: int
    vtcm: int
    has_fp16: bool = True


_C = QcomChipset
CHIPSETS: dict[QcomChipset, Htp] = {
    _C.SM8350: Htp(68, 4, has_fp16=False), _C.SM8450: Htp(69, 8), _C.SA8295: Htp(68, 8), _C.SM8475: Htp(69, 8),
    _C.SM8550: Htp(73, 8), _C.SXR1230P: Htp(73, 2, has_fp16=False), _C.SSG2115P: Htp(73, 2, has_fp16=False),
    _C.SA8255: Htp(73, 8), _C.SXR2230P: Htp(69, 8), _C.SM8650: Htp(75, 8), _C.SSG2125P: Htp(73, 2, has_fp16=False),
    _C.SC8380XP: Htp(73, 8), _C.SM8750: Htp(79, 8), _C.SA8797: Htp(81, 16), _C.SXR2330P: Htp(79, 8),
    _C.QCS9100: Htp(73, 8), _C.SM8850: Htp(81, 8), _C.QCM6490: Htp(68, 2, has_fp16=False),
    _C.SAR2230P: Htp(81, 4, has_fp16=False), _C.SW6100: Htp(81, 4, has_fp16=False), _C.SM8845: Htp(81, 8),
}  # fmt: skip
PRODUCTS = {
    _C.SM8350: "Snapdragon 888", _C.SM8450: "Snapdragon 8 Gen 1", _C.SM8475: "Snapdragon 8+ Gen 1",
    _C.SM8550: "Snapdragon 8 Gen 2", _C.SM8650: "Snapdragon 8 Gen 3", _C.SM8750: "Snapdragon 8 Elite",
    _C.SM8845: "Snapdragon 8 Gen 5", _C.SM8850: "Snapdragon 8 Elite Gen 5", _C.SC8380XP: "Snapdragon X Elite",
    _C.SXR2230P: "Snapdragon XR2 Gen 2", _C.SSG2115P: "Snapdragon AR2 Gen 1",
}  # fmt: skip
BLOCK_MULTIPLE = 8  # the HTP's results are wrong for weight blocks of other than a multiple of 8 channels
INT16_WEIGHTS_ARCH, BLOCKWISE_ARCH = 73, 69  # first Hexagon versions with 16-bit and with blockwise weights
SIMULATED = " (simulation only: will not run on the device)"  # suffix of the target in a file's metadata
WITHOUT_FP16 = tuple(soc.name for soc, htp in CHIPSETS.items() if not htp.has_fp16)


def targets() -> dict[str, str]:
    """Supported targets with a one-line description."""
    return {
        soc.name: f"Qualcomm {PRODUCTS.get(soc, soc.name)}, Hexagon v{htp.arch}, {htp.vtcm} MiB of VTCM"
        for soc, htp in CHIPSETS.items()
    }


class QnnExecuTorchHtpPerformanceMode(enum.IntEnum):
    """Performance mode of the HTP."""

    kHtpDefault = 0  # noqa: N815
    kHtpSustainedHighPerformance = 1  # noqa: N815
    kHtpBurst = 2  # noqa: N815
    kHtpHighPerformance = 3  # noqa: N815
    kHtpPowerSaver = 4  # noqa: N815
    kHtpLowPowerSaver = 5  # noqa: N815
    kHtpHighPowerSaver = 6  # noqa: N815
    kHtpLowBalanced = 7  # noqa: N815
    kHtpBalanced = 8  # noqa: N815


_ERRORS, _DEBUG = 1, 5  # log levels of the device
_BURST = QnnExecuTorchHtpPerformanceMode.kHtpBurst


@dataclass(frozen=True)
class CompileSpec:
    """A named setting stored in a ``.pte`` for the device."""

    key: str
    value: bytes


def get_soc_to_chipset_map() -> dict[str, QcomChipset]:
    """SoCs by name.

    >>> get_soc_to_chipset_map()["SM8650"]
    <QcomChipset.SM8650: 57>
    """
    return {chipset.name: chipset for chipset in QcomChipset}


def chipset(value: Any) -> QcomChipset:
    """A SoC by name or number."""
    names = list(get_soc_to_chipset_map())
    if isinstance(value, str) and value.upper() in names:
        return QcomChipset[value.upper()]
    if isinstance(value, int) and not isinstance(value, bool) and value in set(QcomChipset):
        return QcomChipset(value)
    raise not_among("soc_model", value, names)


def generate_htp_compiler_spec(
    use_fp16: bool, use_dlbc: bool = False, use_multi_contexts: bool = False, use_weight_sharing: bool = False,
    use_slc_allocator: bool = False, htp_performance_mode: int = _BURST,
) -> BackendOptions:  # fmt: skip
    """Options of the HTP backend; ``use_fp16`` for models that are not quantized."""
    if htp_performance_mode not in set(QnnExecuTorchHtpPerformanceMode):
        raise UsageError("htp_performance_mode", "must be 0 to 8", value=htp_performance_mode)
    flags = (use_fp16, use_dlbc, use_multi_contexts, use_weight_sharing, use_slc_allocator)
    for flag in flags:
        if not isinstance(flag, bool):
            raise UsageError("generate_htp_compiler_spec", "options must be True or False", value=flag)
    options = HtpOptions(
        performance_mode=int(htp_performance_mode), precision=FP16 if use_fp16 else 0, use_conv_hmx=True,
        use_fold_relu=True, use_dlbc=use_dlbc, use_multi_contexts=use_multi_contexts,
        use_weight_sharing=use_weight_sharing, use_slc_allocator=use_slc_allocator,
    )  # fmt: skip
    return BackendOptions(backend_type=HTP_BACKEND, htp_options=options)


# Options of ExecuTorch's that are rejected: why, and what to do instead.
UNSUPPORTED = {
    "saver": ("records calls for QNN's Saver library, which is not used here", "`edgewright disasm` shows the graph."),
    "online_prepare": (
        "makes the phone compile the graph each time it is loaded; contexts are compiled ahead of time here",
        "Leave it out.",
    ),
    "dump_intermediate_outputs": (
        "makes the phone write the results of every operator, which changes what is computed",
        "`edgewright compare` compares layer by layer on this machine.",
    ),
    "is_from_context_binary": (
        "is for contexts of other tools, of which there is no graph to check or to simulate",
        "Compile the model itself.",
    ),
    "op_package_options": (
        "loads libraries with operators of your own, which can neither be verified nor emulated here",
        "Leave the operator to the CPU: register_kernel runs it here.",
    ),
    "use_mha2sha": (
        "splits attention into single heads by a pass of ExecuTorch's, which is not here",
        "Leave it out, or split the heads in the model.",
    ),
    "direct_build_folder": ("is for a protocol between phone and DSP that is not here", "Leave it out."),
}  # fmt: skip


def reject_unsupported(name: str, value: Any) -> None:
    """Raise if an unsupported option is set, with the reason."""
    if value:
        reason, remedy = UNSUPPORTED[name]
        raise UsageError(name, f"is not supported: it {reason}", value=value, remedy=remedy)


def generate_qnn_executorch_compiler_spec(
    soc_model: Any, backend_options: BackendOptions, debug: bool = False, saver: bool = False,
    online_prepare: bool = False, dump_intermediate_outputs: bool = False, profile_level: int = 0,
    shared_buffer: bool = False, is_from_context_binary: bool = False,
    op_package_options: OpPackageOptions | None = None, use_mha2sha: bool = False, *, vtcm_mb: int | None = None,
) -> list[CompileSpec]:  # fmt: skip
    """The compile spec for ``QnnPartitioner``, which the device reads as well. ``vtcm_mb``: MiB of VTCM to use, all by
    default.

    >>> spec = generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, generate_htp_compiler_spec(use_fp16=True))
    >>> QnnTarget.of(spec).soc.name, QnnTarget.of(spec).fp16
    ('SM8650', True)
    """
    if not isinstance(backend_options, BackendOptions):
        remedy = "Make them: generate_htp_compiler_spec(use_fp16=True)."
        raise UsageError("backend_options", "must be of an HTP", value=type(backend_options).__name__, remedy=remedy)
    unsupported = {
        "saver": saver, "online_prepare": online_prepare, "dump_intermediate_outputs": dump_intermediate_outputs,
        "is_from_context_binary": is_from_context_binary, "op_package_options": op_package_options,
        "use_mha2sha": use_mha2sha,
    }  # fmt: skip
    for name, value in unsupported.items():
        reject_unsupported(name, value)
    if profile_level not in (0, 2, 3):
        raise UsageError("profile_level", "must be 0 (off), 2 (detailed) or 3 (every operator)", value=profile_level)
    soc = chipset(soc_model)
    limit = CHIPSETS[soc].vtcm
    if vtcm_mb is not None and (type(vtcm_mb) is not int or not 0 < vtcm_mb <= limit):
        raise UsageError("vtcm_mb", f"must be 1 to {limit} on {soc.name}", value=vtcm_mb)
    htp = HtpInfo(htp_arch=CHIPSETS[soc].arch, vtcm_size_in_mb=limit if vtcm_mb is None else vtcm_mb)
    options = QnnOptions(
        soc_info=SocInfo(soc_model=int(soc), htp_info=htp), backend_options=backend_options, library_path="",
        log_level=_DEBUG if debug else _ERRORS, profile_level=profile_level, shared_buffer=shared_buffer,
        saver_output_dir="saver_output", op_package_options=OpPackageOptions(op_package_infos=[]),
    )  # fmt: skip
    return [CompileSpec(KEY, write_options(options))]


# Compiler flags, by the name of the setting that a context reports for them.
FLAGS = {"use_dlbc": "enable_dlbc", "use_slc_allocator": "slc_allocate"}


@dataclass(frozen=True)
class QnnTarget:
    """The target of rules and lowering: the SoC and the compiler's options."""

    soc: QcomChipset
    fp16: bool
    level: int = 3  # optimization level of the compiler
    value: bytes = b""
    vtcm_mb: int = 0  # MiB of VTCM to use; 0 for all
    flags: tuple[str, ...] = ()  # of ``FLAGS``
    sharing: bool = False  # methods share equal weights
    shares_spill: bool = False  # contexts share one spill buffer

    @property
    def htp(self) -> Htp:
        return CHIPSETS[self.soc]

    @property
    def vtcm(self) -> int:
        """MiB of VTCM to use."""
        return self.vtcm_mb or self.htp.vtcm

    @classmethod
    def of(cls, specs: Any) -> QnnTarget:
        """The target of compile specs."""
        spec_list = list(specs) if isinstance(specs, Sequence) and not isinstance(specs, str | bytes) else []
        values = [s.value for s in spec_list if getattr(s, "key", None) == KEY]
        if len(values) != 1:
            remedy = "Make them: generate_qnn_executorch_compiler_spec(soc, generate_htp_compiler_spec(use_fp16=...))."
            raise UsageError("compiler_specs", f"must hold one {KEY}", value=len(values), remedy=remedy)
        return cls.read(bytes(values[0]))

    @classmethod
    def read(cls, value: bytes) -> QnnTarget:
        """Parse and verify serialized options, which may come from a file."""
        options = read_options(value)
        assert options.soc_info is not None and options.backend_options is not None
        backend, soc = options.backend_options, options.soc_info.soc_model
        if backend.backend_type != HTP_BACKEND or backend.htp_options is None:
            raise FormatError("must be for an HTP", where="backend_type", value=backend.backend_type)
        if soc not in set(QcomChipset):
            raise FormatError("must be the number of a known SoC", where="soc_model", value=soc)
        htp, info, limit = backend.htp_options, options.soc_info.htp_info, CHIPSETS[QcomChipset(soc)].vtcm
        vtcm = info.vtcm_size_in_mb if info is not None and info.vtcm_size_in_mb else limit
        if vtcm > limit:
            raise FormatError(f"must be at most {limit}", where="vtcm_size_in_mb", value=vtcm)
        flags = tuple(name for name in FLAGS if getattr(htp, name))
        shared = {"sharing": bool(htp.use_weight_sharing), "shares_spill": bool(htp.use_multi_contexts)}
        return cls(QcomChipset(soc), htp.precision == FP16, value=value, vtcm_mb=vtcm, flags=flags, **shared)


def read_spec(specs: object) -> tuple[str, bool] | None:
    """The SoC of compile specs; None for anything else."""
    keys = [getattr(spec, "key", None) for spec in specs] if isinstance(specs, Sequence) else []
    if KEY not in keys or None in keys:
        return None
    return QnnTarget.of(specs).soc.name, False
