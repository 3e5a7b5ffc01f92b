"""The TOML file of a sweep: what it accepts, and errors that name the line and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewright.errors import FileAccessError, InputError
from edgewright.explore.sweep_file import Limits, SweepFile
from edgewright.explore.toml_lines import find_line

GOOD = """# a sweep
targets = [
    "xnnpack",   # the CPU
    "ethos-u55-128",
]
quantize = ["float", "int8"]
calibrate = "calib.npz"

[models]
small = "net:small"
"large one" = {model = "net:large", calibrate = "other.npz"}

[options]
integer_io = [false, true]
simulate = true

[limits]
seconds = 1.5
memory = "2G"

[[exclude]]
target = "xnnpack"
integer_io = true
[[exclude]]
model = "small"
quantize = "float"
"""


def test_a_sweep_is_read() -> None:
    sweep = SweepFile(GOOD, "s.toml")
    assert sweep.targets == ["xnnpack", "ethos-u55-128"] and sweep.quantize == ["float", "int8"]
    assert [(m.name, m.spec, m.data["calibrate"]) for m in sweep.models] == [
        ("small", "net:small", "calib.npz"), ("large one", "net:large", "other.npz"),
    ]  # fmt: skip
    assert sweep.options == {"integer_io": [False, True], "simulate": [True]}
    assert sweep.limits == Limits(1.5, 2 << 30, 3)
    assert sweep.excludes({"target": "xnnpack", "integer_io": True})
    assert not sweep.excludes({"target": "xnnpack", "integer_io": False})
    assert sweep.excludes({"model": "small", "quantize": "float", "target": "ethos-u55-128"})


def test_without_precision_it_is_float_unless_there_are_recipes() -> None:
    text = 'targets = "xnnpack"\n[models]\na = "n:a"\n'
    assert SweepFile(text, "s").quantize == ["float"]
    assert SweepFile(f'recipes = ["r.toml"]\n{text}', "s").quantize == []


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (("targets",), None, 2), (("targets",), "ethos-u55-128", 4), (("models", "small"), None, 10),
        (("models", "large one", "calibrate"), None, 11), (("options", "integer_io"), None, 14),
        (("limits", "memory"), "2G", 19), (("exclude", 0, "target"), None, 22), (("exclude", 1, "quantize"), None, 26),
        (("nothing",), None, 1),
    ],
)  # fmt: skip
def test_lines_of_keys(key: tuple[object, ...], value: object, line: int) -> None:
    assert find_line(GOOD, key, value) == line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("quantize = [", "quantise = [", r"s.toml:6: quantise is not a key.*\n  Did you mean quantize"),
        ("integer_io = [false, true]", "integer_oi = true", r"s.toml:14: integer_oi is not a key.*\n.*integer_io"),
        ("seconds = 1.5", 'seconds = "long"', r"s.toml:18: seconds must be an integer or a number; got long"),
        ("seconds = 1.5", "seconds = 0", r"s.toml:18: seconds must be positive; got 0"),
        ('memory = "2G"', 'memory = "much"', r"s.toml:19: memory must be a size"),
        ("simulate = true", 'simulate = "yes"', r"s.toml:15: simulate must be true or false; got yes"),
        ('small = "net:small"', "small = 3", r"s.toml:10: small must be a table"),
        ('{model = "net:large"', '{modle = "net:large"', r"s.toml:11: modle is not a key.*\n  Did you mean model"),
        ('    "xnnpack",   # the CPU', '    "xnnpack", "xnnpack",', r"s.toml:3: targets must name each once"),
        ('model = "small"', 'model = "smal"', r"s.toml:25: model must be one.*smal\n  Did you mean small"),
        ('calibrate = "calib.npz"', "calibrate = 3", r"s.toml:7: calibrate must be text"),
    ],
)  # fmt: skip
def test_errors_name_line_and_nearest(old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(InputError, match=message):
        SweepFile(GOOD.replace(old, new), "s.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\ntargets = x", "must be TOML.*line 2"),
        ('[models]\na = "n:a"', "must have targets"),
        ('targets = ["xnnpack"]', "must have models"),
        ('targets = ["xnnpack"]\nbetter = "best"\n[models]\na = "n:a"', "s:2: better must be higher or lower"),
    ],
)  # fmt: skip
def test_what_is_missing(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SweepFile(text, "s")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"no.toml: cannot be opened"):
        SweepFile.read(tmp_path / "no.toml")
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe9'")
    with pytest.raises(InputError, match="must be UTF-8"):
        SweepFile.read(tmp_path / "latin.toml")
