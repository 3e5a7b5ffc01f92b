"""The committed table, and the parts of applications that need no weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.applications import object_detection, pitch, speech_recognition, tfjs
from examples.applications.__main__ import NAMES, find, main
from examples.applications.table import BEGIN, DOCS, END, overview, read_rows, results


def test_pages_have_the_table() -> None:
    rows, applications = read_rows(), {name: find(name) for name in NAMES}
    pages = {name: results([row for row in rows if row.application == name], applications[name]) for name in NAMES}
    for name, text in {"index": overview(rows, applications), **pages}.items():
        page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        assert f"{BEGIN}\n{text}\n{END}" in page, f"{name}.md: run python -m examples.applications table"


def test_a_precision_that_no_application_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "pitch", "--target", "xnnpack", "--precision", "a16w8", "--work", str(tmp_path)])
    assert "has these targets and precisions; there are e9955" in capsys.readouterr().err


def test_table_is_complete() -> None:
    keys = [row.key for row in read_rows()]
    assert len(set(keys)) == len(keys)
    for name in NAMES:
        for target, precisions in find(name).targets.items():
            found = {row.precision for row in read_rows() if (row.application, row.target) == (name, target)}
            assert found == set(precisions), (name, target)


@pytest.mark.parametrize(
    ("found", "errors"), [("a b c", 0), ("a x c", 1 / 3), ("a c", 1 / 3), ("a b b c", 1 / 3), ("", 1)]
)
def test_word_errors(found: str, errors: float) -> None:
    assert speech_recognition.word_errors(found.split(), ["a", "b", "c"]) == pytest.approx(errors)


def test_detections_drop_overlapping_boxes_of_a_kind() -> None:
    boxes = np.array([[[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.45], [0.5, 0.5, 1, 1.2], [0, 0, 0.5, 0.5]]])
    probabilities = np.zeros((1, 4, len(object_detection.KINDS)))
    for anchor, (kind, probability) in enumerate([("cat", 0.9), ("cat", 0.8), ("cat", 0.7), ("dog", 0.45)]):
        probabilities[0, anchor, object_detection.KINDS.index(kind)] = probability
    found = object_detection.detections(boxes, probabilities)
    assert [(d.kind, d.probability) for d in found] == [("cat", 0.9), ("cat", 0.7), ("dog", 0.45)]
    assert found[1].box == (0.5, 0.5, 1, 1) and found[0].overlap(found[2]) == 1 and found[0].overlap(found[1]) == 0


def test_pitch_is_between_bins() -> None:
    probabilities = np.zeros((2, pitch.BINS))
    probabilities[0, 100:102] = 0.5
    probabilities[1, 0] = 1
    assert pitch.decode(probabilities) == pytest.approx([pitch.CENTS[100] + 10, pitch.CENTS[0]])


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "expected"),
    [(300, 3, 2, [0, 1]), (150, 3, 1, [1, 1]), (75, 3, 2, [1, 1]), (256, 1, 1, [0, 0]), (19, 5, 2, [2, 2])],
)
def test_same_padding(size: int, kernel: int, stride: int, expected: list[int]) -> None:
    """As TensorFlow documents it: what is odd goes behind."""
    assert tfjs._padding((size, size), (kernel, kernel), (stride, stride), "SAME") == expected * 2
    assert tfjs._padding((size, size), (kernel, kernel), (stride, stride), "VALID") == [0, 0, 0, 0]
