"""ExecuTorch's helpers for Qualcomm's example scripts: compiles in one call, and runs programs on a phone or the host.

The names and arguments are those that scripts use (``executorch.backends.qualcomm.export_utils``).
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewright.backends.qualcomm.compat import (
    QnnExecuTorchBackendType,
    QnnQuantizer,
    to_edge_transform_and_lower_to_qnn,
)
from edgewright.backends.qualcomm.schemes import QuantDtype
from edgewright.backends.qualcomm.script_phone import ScriptPhone
from edgewright.backends.qualcomm.target import (
    QnnExecuTorchHtpPerformanceMode,
    chipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    reject_unsupported,
)
from edgewright.engine.profile import Profile
from edgewright.errors import UsageError
from edgewright.frontend.buffers import preserve_buffers
from edgewright.frontend.tensors import to_array
from edgewright.hints import did_you_mean
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.memory import MemoryPlanningPass
from edgewright.quantize.batching import calibrate
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e
from edgewright.runtime.program import Runtime

log = logging.getLogger("edgewright.qualcomm")
_BURST = QnnExecuTorchHtpPerformanceMode.kHtpBurst
_TEXTS = {
    "soc_model": "the SoC, such as SM8550", "build_folder": "ExecuTorch's build; not needed here",
    "host": "where adb's server is", "device": "the phone's serial number",
    "ip": "where results are sent to", "pre_gen_pte": "a folder with programs that were compiled before",
    "skip_delegate_node_ids": "nodes to exclude, separated by commas", "target": "the phone's system",
    "skip_delegate_node_ops": "operators to exclude, separated by commas", "direct_build_folder": "not supported",
    "config_file": "all of these, as JSON",
}  # fmt: skip
_SHORT = {"build_folder": ("-b",), "soc_model": ("-m",), "device": ("-s",), "host": ("-H",)}
_FLAGS = ("online_prepare", "compile_only", "shared_buffer", "skip_push", "dump_intermediate_outputs",
          "enable_x86_64", "ci")  # fmt: skip


def get_backend_type(backend: str) -> QnnExecuTorchBackendType:
    """The backend by name; only ``htp`` is supported."""
    name = f"k{backend.title()}Backend"
    if name not in QnnExecuTorchBackendType.__members__:
        raise UsageError("backend", "must be htp, gpu, dsp or lpai", value=backend)
    return QnnExecuTorchBackendType[name]


@dataclass
class QnnConfig:
    """Configuration of a script. Strings as on the command line; ``backend`` and the sets are parsed."""

    soc_model: str
    build_folder: str = ""
    direct_build_folder: str | None = None
    backend: Any = "htp"
    target: str = "aarch64-android"
    online_prepare: bool = False
    shared_buffer: bool = False
    dump_intermediate_outputs: bool = False
    profile_level: int = 0
    enable_x86_64: bool = False
    host: str | None = None
    device: str | None = None
    port: int = -1
    ip: str = ""
    skip_delegate_node_ids: Any = None
    skip_delegate_node_ops: Any = None
    compile_only: bool = False
    pre_gen_pte: str | None = None
    skip_push: bool = False
    ci: bool = False
    seed: int | None = None
    htp_performance_mode: int = _BURST

    def __post_init__(self) -> None:
        self.soc_model = chipset(self.soc_model).name
        self.backend = get_backend_type(self.backend) if isinstance(self.backend, str) else self.backend
        if self.backend != QnnExecuTorchBackendType.kHtpBackend:
            raise UsageError("backend", "must be htp: Edgewright compiles for the HTP", value=self.backend.name)
        if self.compile_only and self.pre_gen_pte:
            raise UsageError("pre_gen_pte", "must be left out with compile_only")
        for name in ("direct_build_folder", "dump_intermediate_outputs", "online_prepare"):
            reject_unsupported(name, getattr(self, name))
        for name in ("skip_delegate_node_ids", "skip_delegate_node_ops"):
            value = getattr(self, name)
            setattr(self, name, set(value.split(",")) if isinstance(value, str) and value else set(value or ()))
        if self.target != "aarch64-android":
            log.warning(
                "target=%r is not used: phones run Android here, and everything else is this machine", self.target
            )
        if self.seed is not None:
            torch.manual_seed(self.seed)
            np.random.seed(self.seed)
            random.seed(self.seed)

    @classmethod
    def load_config(cls, config: argparse.Namespace | str) -> QnnConfig:
        """From a script's arguments or a JSON file."""
        settings = json.loads(Path(config).read_text(encoding="utf-8")) if isinstance(config, str) else vars(config)
        names = {f.name for f in fields(cls)}
        for name in sorted(set(settings) - names) if isinstance(config, str) else ():
            log.warning("%s: %r is not an option, and has no effect. %s", config, name, did_you_mean(name, names))
        if not settings.get("soc_model"):
            raise UsageError("soc_model", "is required", remedy="--soc_model SM8650")
        return cls(**{name: value for name, value in settings.items() if name in names and value is not None})


def setup_common_args_and_variables(parser: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """A parser with the options common to Qualcomm's scripts. Their short forms (``-b``, ``-m``, ``-s``, ``-H``), which
    ExecuTorch's pages use, give way to a script's own."""
    parser = parser or argparse.ArgumentParser()
    taken = set(parser._option_string_actions)
    for container in (parser, *parser._action_groups):
        container.conflict_handler = "resolve"
    for name, text in _TEXTS.items():
        short = [option for option in _SHORT.get(name, ()) if option not in taken]
        parser.add_argument(*short, f"--{name}", help=text, default="" if name == "ip" else None)
    for name in _FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--backend", default="htp", choices=("htp", "gpu", "lpai"))
    parser.add_argument("--port", type=int, default=-1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--profile_level", type=int, default=0, choices=(0, 2, 3))
    parser.add_argument("--htp_performance_mode", type=int, default=int(_BURST), choices=range(9))
    return parser


def make_quantizer(
    quant_dtype: QuantDtype = QuantDtype.use_8a8w, custom_annotations: Sequence[Any] = (),
    per_channel_conv: bool = True, per_channel_linear: bool = False, per_channel_embedding: bool = False,
    act_observer: Any = None, act_symmetric: bool = False, is_qat: bool = False,
    submodule_qconfig_list: Sequence[Any] | None = None,
    backend: QnnExecuTorchBackendType = QnnExecuTorchBackendType.kHtpBackend, soc_model: Any = "SM8750",
    eps: float | None = None,
) -> QnnQuantizer:  # fmt: skip
    """A quantizer with one scheme for all operators."""
    quantizer = QnnQuantizer(backend, soc_model)
    quantizer.add_custom_quant_annotations(custom_annotations)
    quantizer.set_default_quant_config(
        quant_dtype, is_qat, per_channel_conv, per_channel_linear, per_channel_embedding, act_observer, act_symmetric,
        eps,
    )  # fmt: skip
    quantizer.set_submodule_qconfig_list(submodule_qconfig_list or ())
    return quantizer


def build_executorch_binary(
    model: torch.nn.Module, qnn_config: QnnConfig, file_name: str, dataset: Sequence[tuple[Any, ...]],
    quant_dtype: QuantDtype | None = None, custom_quantizer: QnnQuantizer | None = None,
    metadata: dict[str, Any] | None = None, qnn_intermediate_debugger: Any = None, passes_job: Any = None,
    passes_dependency: Any = None, qat_training_data: Any = None, op_package_options: Any = None,
) -> None:  # fmt: skip
    """Quantize (if requested), compile and write ``file_name.pte``. With ``compile_only`` the script ends here."""
    if qnn_config.pre_gen_pte:
        return
    _reject(qnn_intermediate_debugger, "qnn_intermediate_debugger", "`edgewright compare` compares layer by layer.")
    _reject(qat_training_data, "qat_training_data", "Train with prepare_qat_pt2e and the same quantizer.")
    _reject(op_package_options, "op_package_options", "An operator of your own with an out variant stays on the CPU.")
    quantizer = custom_quantizer or (
        None if quant_dtype is None else make_quantizer(quant_dtype, soc_model=qnn_config.soc_model)
    )
    options = generate_htp_compiler_spec(quantizer is None, htp_performance_mode=qnn_config.htp_performance_mode)
    specs = generate_qnn_executorch_compiler_spec(
        qnn_config.soc_model, options, profile_level=qnn_config.profile_level, shared_buffer=qnn_config.shared_buffer
    )
    if quantizer is not None:
        model = _calibrate(model, quantizer, dataset)
    manager = to_edge_transform_and_lower_to_qnn(
        model, dataset[0], specs, metadata, skip_node_id_set=qnn_config.skip_delegate_node_ids,
        skip_node_op_set=qnn_config.skip_delegate_node_ops, passes_job=passes_job, dep_table=passes_dependency,
    )  # fmt: skip
    alloc_io = not qnn_config.shared_buffer  # otherwise the caller provides memory that the phone's processors share
    planning = MemoryPlanningPass(alloc_graph_input=alloc_io, alloc_graph_output=alloc_io)
    manager.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).save(f"{file_name}.pte")
    if qnn_config.compile_only:
        raise SystemExit(0)


def _reject(value: Any, name: str, remedy: str) -> None:
    if value is not None:
        raise UsageError(name, "is not supported", remedy=remedy)


def _calibrate(model: torch.nn.Module, quantizer: QnnQuantizer, dataset: Sequence[tuple[Any, ...]]) -> Any:
    exported = torch.export.export(model, dataset[0])
    with preserve_buffers(exported), torch.no_grad():  # otherwise a cache would start with calibration data
        ready = prepare_pt2e(exported.module(), quantizer, tuple(dataset[0]))
        calibrate(ready, dataset)
    return convert_pt2e(ready)


def generate_inputs(
    dest_path: str, input_list_filename: str, inputs: Sequence[Any] | None = None, prefix_input_filename: str = ""
) -> tuple[str | None, list[str]]:
    """Write inputs as raw files, and a list of them with one line per inference; returns the paths of list and
    files."""
    if inputs is None:
        return None, []
    lines, files = [], []
    for number, call in enumerate(inputs):
        flat = [x for item in call for x in (item if isinstance(item, list | tuple) else [item])]
        names = [f"{prefix_input_filename}_input_{number}_{index}.raw" for index in range(len(flat))]
        for name, value in zip(names, flat, strict=True):
            files.append(str(Path(dest_path) / name))
            to_array(torch.as_tensor(value).contiguous()).tofile(files[-1])
        lines.append(" ".join(names))
    list_path = Path(dest_path) / input_list_filename
    list_path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(list_path), files


class SimpleADB:
    """Runs a program and writes its outputs: on the phone that ``qnn_config.device`` names (``-s SERIAL``), or on this
    machine."""

    def __init__(
        self, qnn_config: QnnConfig, pte_path: str | list[str], workspace: str, error_only: bool = False,
        runner: str | None = None,
    ) -> None:  # fmt: skip
        paths = [Path(p) for p in (pte_path if isinstance(pte_path, list) else [pte_path])]
        ready = qnn_config.pre_gen_pte
        self.pte_path = [Path(ready) / p.name for p in paths] if ready else paths
        self.workspace, self._error_only = workspace, error_only
        self._phone: ScriptPhone | None = None
        if runner is not None:
            log.warning("runner=%r is not used: the runner is qnn_executor_runner of build_folder", runner)
        if qnn_config.device is None:
            for name in ("host", "skip_push"):
                if getattr(qnn_config, name):
                    log.warning("%s is not used without a device (-s SERIAL): the program runs on this machine", name)
        if error_only and qnn_config.device is None:
            log.warning("error_only is not used without a device (-s SERIAL): there is no runner's log to shorten")
        if qnn_config.device is not None:
            self._phone = ScriptPhone(
                qnn_config.device, qnn_config.host, workspace, self.pte_path, qnn_config.build_folder,
                qnn_config.skip_push,
            )  # fmt: skip
        self._inputs: list[tuple[Any, ...]] = []
        self._outputs: list[list[Any]] = []
        self._profile = Profile()

    def push(
        self, inputs: Sequence[Any] | None = None, files: Any = None, backends: Any = None, init_env: bool = True
    ) -> None:
        """Set the inputs of the inferences, and push them to a phone with the program, its runner and the libraries."""
        if backends is not None:
            log.warning("backends is not used: the libraries of the HTP are pushed")
        if not init_env:
            log.warning("init_env=False is not used: skip_push of the configuration leaves out runner and libraries")
        if self._phone is not None:
            self._phone.push(inputs, list(files or ()), generate_inputs)
        elif files:
            log.warning("files are not copied: %s runs on this machine", self.pte_path[0].name)
        self._inputs = [tuple(call) for call in inputs or ()]

    def execute(
        self, custom_runner_cmd: Any = None, method_index: int = 0,
        output_callback: Callable[[str], Any] | None = None, iteration: int = 1,
    ) -> None:  # fmt: skip
        """Run all inferences, each ``iteration`` times."""
        for name, value in (("custom_runner_cmd", custom_runner_cmd), ("output_callback", output_callback)):
            if value is not None:
                raise UsageError(name, "is not supported", remedy="Leave it out; edgewright device run prints the log.")
        if self._phone is not None:
            if method_index:
                raise UsageError("method_index", "must be 0 on a phone", value=method_index)
            self._phone.execute(iteration, (lambda line: None) if self._error_only else print)
            return
        program = Runtime.get().load_program(self.pte_path[0])
        method = program.load_method(program.method_names[method_index])
        log.warning("%s runs on this machine", self.pte_path[0].name)
        for _ in range(iteration):
            self._outputs = [method.execute([torch.as_tensor(x) for x in call], profile=self._profile)
                             for call in self._inputs]  # fmt: skip

    def pull(
        self, host_output_path: str, device_output_path: Any = None, callback: Callable[[], Any] | None = None
    ) -> None:
        """Write the outputs as raw files into ``outputs`` of a folder."""
        if device_output_path is not None:
            log.warning("device_output_path is not used: outputs are where execute() has written them")
        if self._phone is not None:
            self._phone.pull(Path(host_output_path))
        else:
            self._write_outputs(Path(host_output_path) / "outputs")
        if callback is not None:
            callback()

    def _write_outputs(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, outputs in enumerate(self._outputs):
            for index, output in enumerate(outputs):
                np.asarray(output).tofile(folder / f"output_{number}_{index}.raw")

    def pull_etdump(self, output_path: str, callback: Callable[[], Any] | None = None) -> None:
        """Write the profile of the runs."""
        path = Path(output_path) / "etdump.etdp" if Path(output_path).is_dir() else Path(output_path)
        if self._phone is not None:
            self._phone.pull_etdump(path)
        else:
            self._profile.save_etdump(path)
        if callback is not None:
            callback()
