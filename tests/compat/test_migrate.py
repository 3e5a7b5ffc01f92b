"""``edgewright migrate``: imports change by the table, everything else stays byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgewright.compat.migrate import migrate
from edgewright.errors import UsageError
from tests.cli.cli import Cli
from tests.compat.seeds import PAGES, blocks


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from executorch.exir import to_edge", "from edgewright import to_edge"),
        ("from executorch.exir import to_edge as t  # why", "from edgewright import to_edge as t  # why"),
        ("import executorch.kernels.quantized\nx = 1", "x = 1"),
        ("from executorch.kernels import quantized\nx = 1", "x = 1"),
        ("if x:\n    import executorch.kernels.quantized", "if x:\n    pass"),
        ("import executorch.exir as e\ne.to_edge(p)", "import edgewright as e\ne.to_edge(p)"),
        ("import os, executorch.kernels.quantized", "import os"),
        (
            "from executorch.exir import (\n    ExecutorchProgramManager,\n    to_edge,\n)\n",
            "from edgewright.program.edge import ExecutorchProgramManager\nfrom edgewright import to_edge\n",
        ),
        (
            "from executorch.backends.arm.arm_partitioner import ArmPartitioner",
            "from edgewright.backends.ethos_u import EthosUPartitioner as ArmPartitioner",
        ),
        ("def f():\n    from executorch.exir import to_edge\n", "def f():\n    from edgewright import to_edge\n"),
        ("é = 1\r\nfrom executorch.exir import to_edge\r\n", "é = 1\r\nfrom edgewright import to_edge\r\n"),
        ("from .executorch import x\nimport torch", "from .executorch import x\nimport torch"),
    ],
)
def test_imports_are_rewritten(before: str, after: str) -> None:
    done = migrate(before)
    assert done.text == after
    assert not done.left


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (
            "from executorch.exir import capture, to_edge",
            "from executorch.exir import capture\nfrom edgewright import to_edge",
            "torch.export.export",
        ),
        ("from executorch.backends.vulkan import x", "from executorch.backends.vulkan import x", "Nearest"),
        ("import executorch.exir", "import executorch.exir", "from ... import"),
        ("import executorch.exir as e\ne.nothing()", "import executorch.exir as e\ne.nothing()", "from ... import"),
        ("from executorch.examples.models import x", "from executorch.examples.models import x", "own examples"),
        ("from executorch import exir", "from executorch import exir", "is a module"),
        ("x = 1; import executorch.kernels.quantized", "x = 1; import executorch.kernels.quantized", "shares its line"),
    ],
)
def test_what_cannot_be_rewritten_stays_and_is_told(before: str, after: str, why: str) -> None:
    done = migrate(before)
    assert done.text == after
    assert why in str(done.left[0])


@pytest.mark.parametrize("page", sorted(PAGES))
def test_nothing_of_executorch_is_left_in_the_pages(page: str) -> None:
    for block in blocks(page):
        done = migrate(block)
        assert not done.left
        compile(done.text, page, "exec")
        rest = [line for line in done.text.splitlines() if "import" in line and "executorch." in line]
        assert not rest


def test_not_python() -> None:
    with pytest.raises(UsageError, match="line 1"):
        migrate("import (")


def test_the_command_shows_a_diff_and_writes_only_if_asked(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "export.py"
    script.write_text("from executorch.exir import to_edge\n")
    shown = cli("migrate", script)
    assert shown.code == 0
    assert "-from executorch.exir import to_edge\n+from edgewright import to_edge\n" in shown.out
    assert script.read_text() == "from executorch.exir import to_edge\n"
    assert cli("migrate", "--write", script).code == 0
    assert script.read_text() == "from edgewright import to_edge\n"
    script.write_text("from executorch.exir import capture\n")
    left = cli("migrate", script)
    assert (left.code, left.out) == (6, "")
    assert "line 1: executorch.exir.capture" in left.err
    (facts,) = json.loads(cli("migrate", "--json", script).out)
    assert (facts["diff"], facts["written"], facts["left"][0]["line"]) == ("", False, 1)
    assert cli("migrate", tmp_path / "none.py").code == 3
