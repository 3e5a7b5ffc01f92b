"""Compile options stored with a QNN delegate: a flatbuffer without identifier, in ExecuTorch's format."""

from __future__ import annotations

from edgewright.errors import FormatError
from edgewright.formats.flatbuffer import BOOL, I32, STRING, U32, Buffer, Vector, slot, table
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter

KEY = "qnn_compile_spec"
HTP_BACKEND = 2
QUANTIZED, FP16 = 0, 1
_MIN_SIZE = 8  # bytes that hold a root and its table


@table
class HtpInfo:
    htp_arch: int = slot(0, I32, default=0)
    vtcm_size_in_mb: int = slot(1, U32, default=0)


@table
class LpaiInfo:
    lpai_hardware_version: int = slot(0, I32, default=0)


@table
class SocInfo:
    soc_model: int = slot(0, I32, default=0)
    htp_info: HtpInfo | None = slot(1, HtpInfo, default=None)
    lpai_info: LpaiInfo | None = slot(2, LpaiInfo, default=None)


@table
class HtpOptions:
    """Options of the HTP. ``performance_mode``: 0 default, 2 burst, … 8 balanced; ``precision``: 1 for fp16."""

    max_sf_buf_size: int = slot(0, I32, default=0)
    performance_mode: int = slot(1, I32, default=0, lo=0, hi=8)
    precision: int = slot(2, I32, default=0, lo=0, hi=1)
    pd_session: int = slot(3, I32, default=0, lo=0, hi=1)
    use_conv_hmx: bool = slot(4, BOOL, default=False)
    use_dlbc: bool = slot(5, BOOL, default=False)
    use_fold_relu: bool = slot(6, BOOL, default=False)
    use_multi_contexts: bool = slot(7, BOOL, default=False)
    use_weight_sharing: bool = slot(8, BOOL, default=False)
    use_slc_allocator: bool = slot(9, BOOL, default=False)


@table
class GpuOptions:
    performance_mode: int = slot(0, I32, default=0)
    precision: int = slot(1, I32, default=0)
    use_memory_optimizations: bool = slot(2, BOOL, default=False)
    use_node_optimizations: bool = slot(3, BOOL, default=False)
    use_queue_recording: bool = slot(4, BOOL, default=False)
    use_weight_sharing: bool = slot(5, BOOL, default=False)


@table
class LpaiOptions:
    fps: int = slot(0, I32, default=0)
    ftrt_ratio: int = slot(1, I32, default=0)
    client_perf_type: int = slot(2, I32, default=0)
    affinity: int = slot(3, I32, default=0)
    core_selection: int = slot(4, I32, default=0)
    target_env: int = slot(5, I32, default=0)


@table
class BackendOptions:
    backend_type: int = slot(0, I32, default=0, lo=0, hi=4)
    htp_options: HtpOptions | None = slot(1, HtpOptions, default=None)
    gpu_options: GpuOptions | None = slot(2, GpuOptions, default=None)
    lpai_options: LpaiOptions | None = slot(3, LpaiOptions, default=None)


@table
class OpPackageInfo:
    op_package_name: str | None = slot(0, STRING, default=None)
    op_package_path: str | None = slot(1, STRING, default=None)
    interface_provider: str | None = slot(2, STRING, default=None)
    target: int = slot(3, I32, default=0)
    custom_op_name: str | None = slot(4, STRING, default=None)
    qnn_op_type_name: str | None = slot(5, STRING, default=None)
    platform: int = slot(6, I32, default=0)


@table
class OpPackageOptions:
    op_package_infos: list[OpPackageInfo] | None = slot(0, Vector(OpPackageInfo), default=None)


@table
class QnnOptions:
    """The root table. ``soc_info``: the device; ``backend_options``: options of the backend."""

    soc_info: SocInfo | None = slot(0, SocInfo, default=None)
    backend_options: BackendOptions | None = slot(1, BackendOptions, default=None)
    library_path: str | None = slot(2, STRING, default=None)
    log_level: int = slot(3, I32, default=0, lo=0, hi=5)
    online_prepare: bool = slot(4, BOOL, default=False)
    dump_intermediate_outputs: bool = slot(5, BOOL, default=False)
    profile_level: int = slot(6, I32, default=0, lo=0, hi=3)
    shared_buffer: bool = slot(7, BOOL, default=False)
    is_from_context_binary: bool = slot(8, BOOL, default=False)
    saver: bool = slot(9, BOOL, default=False)
    saver_output_dir: str | None = slot(10, STRING, default=None)
    op_package_options: OpPackageOptions | None = slot(11, OpPackageOptions, default=None)
    use_mha2sha: bool = slot(12, BOOL, default=False)


def write_options(options: QnnOptions) -> bytes:
    return FlatWriter().finish(options, None)


def read_options(data: Buffer) -> QnnOptions:
    """Parse and verify options; device and backend are required."""
    view = memoryview(data).cast("B")
    try:
        if len(view) < _MIN_SIZE:
            raise FormatError(f"must be at least {_MIN_SIZE} bytes", value=len(view))
        options = read_root(QnnOptions, view)
        if options.soc_info is None or options.backend_options is None:
            raise FormatError("must contain SoC and backend")
    except FormatError as error:
        raise error.inside("QNN options") from None
    return options
