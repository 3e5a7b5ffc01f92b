"""Writes what firmware needs of a program to a folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from edgewright.bare_metal.c_source import SECTION, check_name, check_section, header, source
from edgewright.bare_metal.describe import Description, describe
from edgewright.bare_metal.projects import project_files
from edgewright.bare_metal.selected_operators import selected_operators
from edgewright.errors import UsageError
from edgewright.files import make_folder, write_file
from edgewright.units import size

MAX_BYTES = 64 << 20  # of a program that is written as C


def export_c(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], *, name: str = "model", method: str | None = None,
    section: str = SECTION, project: str | None = None,
) -> tuple[Description, list[tuple[Path, int]]]:  # fmt: skip
    """Write a program as C with its description to a folder; returns the description and the files with their sizes.

    ``NAME.h``, ``NAME.c``: the program's bytes, pool sizes, inputs and outputs. ``selected_operators.yaml``: for
    ExecuTorch's selective build. ``manifest.json``: the same as data. ``project``: also a runner and the build files of
    ``cmake``, ``zephyr`` or ``esp-idf``.
    """
    check_name(name)
    check_section(section)
    about = describe(os.fspath(path), method)
    if len(about.file) > MAX_BYTES:
        remedy = "Flash the .pte itself, at an address that is a multiple of 16."
        rule = f"must be at most {size(MAX_BYTES)} to be written as C"
        raise UsageError(os.fspath(path), rule, value=size(len(about.file)), remedy=remedy)
    texts = {
        f"{name}.h": header(about, name, section),
        f"{name}.c": source(about, name),
        "selected_operators.yaml": selected_operators(about.plan, Path(path).name),
        "manifest.json": json.dumps(about.to_dict(), indent=2, allow_nan=False) + "\n",
    }
    if project is not None:
        texts.update(project_files(project, about, name))
    root = make_folder(folder)
    written = []
    for file, text in texts.items():
        make_folder((root / file).parent)
        written.append((root / file, write_file(root / file, [text.encode()])))
    return about, written


def name_of(path: str | os.PathLike[str]) -> str:
    """A C identifier after a file's name.

    >>> name_of("out/kws.ethos-u55-128.pte"), name_of("3d.pte")
    ('kws_ethos_u55_128', 'model_3d')
    """
    text = re.sub(r"[^A-Za-z0-9_]", "_", Path(path).stem).strip("_")[:50]
    return text if text[:1].isalpha() else f"model_{text}".rstrip("_")
