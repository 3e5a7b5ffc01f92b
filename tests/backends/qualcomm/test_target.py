"""SoCs and compile specs, against stock's own."""

from __future__ import annotations

from typing import Any

import pytest

from edgewright.backends.qualcomm import options
from edgewright.backends.qualcomm.blob import check_context
from edgewright.backends.qualcomm.target import (
    CHIPSETS,
    CompileSpec,
    QcomChipset,
    QnnTarget,
    chipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    get_soc_to_chipset_map,
)
from edgewright.errors import FormatError, UsageError, VendorError
from tests.backends.qualcomm.contexts import relu_context

PAGE = [
    "SA8295",
    "SM8450",
    "SM8475",
    "SM8550",
    "SM8650",
    "SM8750",
    "SSG2115P",
    "SSG2125P",
    "SXR1230P",
    "SXR2230P",
    "SXR2330P",
]


@pytest.fixture(scope="module")
def stock() -> Any:
    """ExecuTorch's schema; its import takes seconds."""
    from executorch.backends.qualcomm.serialization import qc_schema

    return qc_schema


def test_chipsets_are_stocks(stock: Any) -> None:
    theirs = {soc.name: (int(soc), int(i.htp_info.htp_arch), i.htp_info.vtcm_size_in_mb)
              for soc, i in stock._soc_info_table.items()}  # fmt: skip
    assert {soc.name: (int(soc), htp.arch, htp.vtcm) for soc, htp in CHIPSETS.items()} == theirs
    assert set(PAGE) <= set(get_soc_to_chipset_map())


@pytest.mark.slow
@pytest.mark.parametrize("fp16", [True, False])
def test_stock_reads_the_spec(fp16: bool, stock: Any) -> None:
    from executorch.backends.qualcomm.serialization.qc_schema_serialize import flatbuffer_to_option

    (spec,) = generate_qnn_executorch_compiler_spec("SM8550", generate_htp_compiler_spec(use_fp16=fp16))
    found = flatbuffer_to_option(spec.value)
    assert spec.key == "qnn_compile_spec"
    assert found.soc_info == stock._soc_info_table[stock.QcomChipset.SM8550]
    assert found.backend_options.backend_type == stock.QnnExecuTorchBackendType.kHtpBackend
    mode = stock.QnnExecuTorchHtpPerformanceMode.kHtpBurst
    precision = stock.QnnExecuTorchHtpPrecision(int(fp16))
    wanted = stock.QnnExecuTorchHtpBackendOptions(performance_mode=mode, precision=precision)
    assert found.backend_options.htp_options == wanted
    assert found.log_level == stock.QnnExecuTorchLogLevel.kLogLevelError


@pytest.mark.parametrize("name", PAGE)
def test_contexts_are_compiled_for_their_soc(name: str) -> None:
    soc = QcomChipset[name]
    check_context(relu_context(soc), QnnTarget(soc, fp16=False))


def test_a_context_for_another_soc_is_refused() -> None:
    with pytest.raises(VendorError, match="must be compiled with soc_type SM8750; got SM8650"):
        check_context(relu_context(), QnnTarget(QcomChipset.SM8750, fp16=False))


def test_unknown_socs_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"got SM865O\n  Did you mean SM8650\?"):
        chipset("SM865O")
    for given in (1, True, None, 2.5):
        with pytest.raises(UsageError, match="must be one of SM8350"):
            chipset(given)


def test_bad_specs_are_refused() -> None:
    htp = generate_htp_compiler_spec(use_fp16=True)
    with pytest.raises(UsageError, match="must be of an HTP; got str"):
        generate_qnn_executorch_compiler_spec("SM8650", "fp16")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="profile_level"):
        generate_qnn_executorch_compiler_spec("SM8650", htp, profile_level=1)
    with pytest.raises(UsageError, match="online_prepare: is not supported"):
        generate_qnn_executorch_compiler_spec("SM8650", htp, online_prepare=True)
    with pytest.raises(UsageError, match="must be 0 to 8"):
        generate_htp_compiler_spec(True, htp_performance_mode=9)
    with pytest.raises(UsageError, match="must hold one qnn_compile_spec; got 0"):
        QnnTarget.of([])
    with pytest.raises(UsageError, match="must hold one"):
        QnnTarget.of("SM8650")


@pytest.mark.parametrize("cut", range(0, 196, 5))
def test_truncated_options_are_rejected(cut: int) -> None:
    (spec,) = generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(use_fp16=True))
    with pytest.raises(FormatError):
        QnnTarget.of([CompileSpec(spec.key, spec.value[:cut])])


def test_options_for_what_is_no_htp_are_refused() -> None:
    soc = options.SocInfo(soc_model=57)
    gpu = options.QnnOptions(soc_info=soc, backend_options=options.BackendOptions(backend_type=1))
    with pytest.raises(FormatError, match="must be for an HTP; got 1"):
        QnnTarget.read(options.write_options(gpu))
    unknown = options.QnnOptions(
        soc_info=options.SocInfo(soc_model=1), backend_options=generate_htp_compiler_spec(use_fp16=True)
    )
    with pytest.raises(FormatError, match="must be the number of a known SoC; got 1"):
        QnnTarget.read(options.write_options(unknown))
