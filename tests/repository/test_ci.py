"""``.ci/run``: the README's test command comes first, on a machine with nothing but Python and what pip installs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_command_runs_before_any_package_of_the_system_is_installed() -> None:
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    commands = [line for line in lines if line and not line.startswith("#")]
    tests = commands.index('eval "$command"')
    installs = [place for place, line in enumerate(commands) if "apt-get" in line]
    assert installs and min(installs) > tests


def test_files_that_it_names_exist() -> None:
    """pytest ends with an error for a file that was renamed, but only after what comes before has run."""
    paths = re.findall(r"(?<![\w./-])tests/[\w./]+", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
