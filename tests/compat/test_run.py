"""``edgewright compat``: scripts run as Python runs them, and their failures are told apart from ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli import GOLDEN, Cli, recorded


def script(folder: Path, text: str) -> Path:
    path = folder / "export.py"
    path.write_text(text)
    return path


def test_a_script_gets_its_arguments_and_its_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 3\n")
    path = script(tmp_path, "import sys, beside\nprint(__name__, sys.argv[1:], beside.VALUE)\n")
    before = list(sys.path), list(sys.argv)
    done = cli("compat", path, "-m", "mv2", "--quiet", "run")
    assert (done.code, done.out) == (0, "__main__ ['-m', 'mv2', '--quiet', 'run'] 3\n")
    assert before == (list(sys.path), list(sys.argv))


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("import sys; sys.exit(5)", 5, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('no weights')", 1, "no weights"),
        ("x = 1\nraise ValueError('of the script')", 1, 'export.py", line 2, in <module>'),
        ("from executorch.exir import capture", 6, "export.py:1: from executorch.exir import capture"),
        (
            "from executorch.exir import ExecutorchBackendConfig\nExecutorchBackendConfig(run_reinplace_pass=True)",
            1,
            "Edgewright's ExecutorchBackendConfig has no run_reinplace_pass",
        ),
        ("from edgewright import Runtime\nRuntime.get().load_program('no.pte')", 3, "export.py:2:"),
    ],
)
def test_how_scripts_end(cli: Cli, tmp_path: Path, text: str, code: int, told: str) -> None:
    done = cli("compat", script(tmp_path, text))
    assert done.code == code
    assert told in done.err
    assert "bug in Edgewright" not in done.err
    assert "runpy" not in done.err


@pytest.mark.slow
def test_nothing_of_torchao_is_shown(tmp_path: Path) -> None:
    """What it logs when it is imported, whoever imports it first, and what torch warns of when it copies graphs."""
    text = "import torchao.quantization, warnings\nwarnings.warn('`isinstance(treespec, LeafSpec)` is', FutureWarning)"
    call = [sys.executable, "-m", "edgewright", "compat", str(script(tmp_path, text))]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_scripts_that_are_not_there(cli: Cli, tmp_path: Path) -> None:
    done = cli("compat", tmp_path / "none.py")
    assert done.code == 3
    assert "is not a file" in done.err


def test_a_script_may_try_what_is_absent(cli: Cli, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "try:\n    from executorch.backends.apple.coreml.partition import CoreMLPartitioner\n"
        "except ImportError as error:\n    print('without', type(error).__name__)\n",
    )
    assert cli("compat", path).out == "without MissingCounterpartError\n"


def test_the_runtime_of_scripts(cli: Cli, tmp_path: Path) -> None:
    inputs, outputs = recorded("linear_fp32_xnnpack")
    text = f"""
import io, numpy, torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch, _load_program
from executorch.runtime import Runtime, Verification

path = {str(GOLDEN / "linear_fp32_xnnpack.pte")!r}
stored = numpy.load({str(GOLDEN / "linear_fp32_xnnpack.npz")!r})
inputs = [torch.from_numpy(stored[k]) for k in stored.files if k.startswith("0.forward.in")]
runtime = Runtime.get()
assert Runtime.get() is runtime
assert runtime.backend_registry.is_available("XnnpackBackend")
assert not runtime.backend_registry.is_available("NoBackend")
assert "aten::add.out" in runtime.operator_registry.operator_names
program = runtime.load_program(path, verification=Verification.Minimal, enable_etdump=True)
assert program.method_names == {{"forward"}}
method = program.load_method("forward")
assert program.load_method("forward") is method
(result,) = method.execute(inputs)
assert isinstance(result, torch.Tensor)
info = method.metadata.input_tensor_meta(0)
assert info.sizes() == tuple(inputs[0].shape) and info.dtype() == 6 and info.nbytes() == inputs[0].nbytes
assert program.metadata("forward").num_outputs() == 1
program.write_etdump_result_to_file("run.etdp", "debug.bin")
with open(path, "rb") as file:
    (again,) = runtime.load_program(io.BytesIO(file.read())).load_method("forward").execute(inputs)
loaded = _load_for_executorch(path, enable_etdump=True)
(module,) = loaded(inputs)
assert loaded.has_etdump() and loaded.method_names() == ["forward"]
loaded.write_etdump_result_to_file("module.etdp")
loaded = _load_program(path)
(late,) = loaded.load_method(loaded.get_method_name(0))(inputs)
assert torch.equal(result, again) and torch.equal(result, module) and torch.equal(result, late)
numpy.save("result.npy", result.numpy())
"""
    import numpy as np

    done = subprocess.run(
        [sys.executable, "-m", "edgewright.compat", str(script(tmp_path, text))],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(tmp_path / "result.npy"), outputs[0], rtol=1e-5, atol=1e-6)
    assert (tmp_path / "run.etdp").stat().st_size > 100 and (tmp_path / "module.etdp").stat().st_size > 100
    assert inputs


def test_bundled_programs_of_scripts(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import BundledProgram
from executorch.devtools.backend_debug import get_delegation_info
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.extension.export_util.utils import export_to_edge, export_to_exec_prog, save_pte_program

model, inputs = torch.nn.ReLU(), (torch.randn(3, 4),)
edge = export_to_edge(model, inputs)
assert [n for n in edge.exported_program().graph.nodes if n.target is exir_ops.edge.aten.relu.default]
program = export_to_exec_prog(model, inputs)
lowered = edge.to_backend(XnnpackPartitioner())
info = get_delegation_info(lowered.exported_program().graph_module)
print(info.get_summary())
print(info.get_operator_delegation_dataframe().values.tolist())
assert save_pte_program(program, "relu", ".") == "relu.pte"
suite = MethodTestSuite("forward", [MethodTestCase(inputs, model(*inputs))])
with open("relu.bpte", "wb") as file:
    file.write(serialize_from_bundled_program_to_flatbuffer(BundledProgram(program, [suite])))
"""
    done = cli("compat", script(tmp_path, text))
    assert done.code == 0
    assert "Number of delegated nodes: 1\nNumber of non-delegated nodes: 0\n" in done.out
    assert "[['relu', 1, 0], ['Total', 1, 0]]" in done.out
    done = cli("verify", "relu.bpte")
    assert (done.code, "1 test case passed" in done.out) == (0, True)


def test_passes_of_scripts(cli: Cli, tmp_path: Path) -> None:
    text = """
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.pass_base import ExportPass, PassResult
from executorch.runtime import Runtime

class Soften(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        op = exir_ops.edge.aten.sigmoid.default if op == exir_ops.edge.aten.relu.default else op
        return super().call_operator(op, args, kwargs, meta)

class Count(ExportPass):
    def call(self, graph_module):
        print(sum(n.op == "call_function" for n in graph_module.graph.nodes))
        return PassResult(graph_module, False)

model, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval(), torch.randn(2, 4)
exported = torch.export.export(model, (x,))
manager = to_edge_transform_and_lower(exported, [Soften(), Count()], [XnnpackPartitioner()])
method = Runtime.get().load_program(manager.to_executorch().buffer).load_method("forward")
print(torch.allclose(method.execute([x])[0], model[0](x).sigmoid(), atol=1e-6))
"""
    done = cli("compat", script(tmp_path, text))
    assert (done.code, done.out) == (0, "2\nTrue\n"), done.err
