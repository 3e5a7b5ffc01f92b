"""Each application, compiled for the CPU and for NPUs: its answers, against the original's and against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.applications.__main__ import find
from examples.applications.application import measure, measure_time, original_answers

pytestmark = pytest.mark.slow


def figures(name: str, target: str, precision: str, folder: Path) -> dict[str, float]:
    application = find(name)
    assert precision in application.targets[target]
    original = original_answers(application)
    rows, answers = measure(application, target, precision, folder, original)
    assert not any(row.rejected for row in rows), rows
    assert all("within rounding" in row.check and row.bytes == (folder / row.file).stat().st_size for row in rows)
    application.show(answers, original, folder)
    pictures = [path for path in folder.iterdir() if path.suffix in (".png", ".jpg")]
    assert [path.stem for path in pictures] == [name] * application.pictures
    return rows[0].figures


@pytest.mark.parametrize(("target", "precision"), [("xnnpack", "int8"), ("ethos-u55-128", "int8"), ("sm8550", "a16w8")])
def test_image_classification(target: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_QNN", "twin")
    found = figures("image-classification", target, precision, tmp_path)
    assert found["right in five"] == 1 and found["same class"] >= 0.8


@pytest.mark.parametrize(
    ("target", "precision", "correlation"), [("xnnpack", "dynamic", 0.98), ("ethos-u85-256", "int8", 0.7)]
)
def test_sentence_search(target: str, precision: str, correlation: float, tmp_path: Path) -> None:
    found = figures("sentence-search", target, precision, tmp_path)
    assert found["right in five"] >= 0.8 and found["rank correlation"] > correlation


def test_voice_activity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_QNN", "twin")
    assert figures("voice-activity", "xnnpack", "float", tmp_path)["same decision"] == 1
    found = figures("voice-activity", "sm8550", "a16w8", tmp_path)
    assert found["right"] > 0.96 and found["same decision"] > 0.98
    assert figures("voice-activity", "ethos-u55-128", "int8", tmp_path)["right"] > 0.9


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128", "imxrt700"])
def test_pitch(target: str, tmp_path: Path) -> None:
    found = figures("pitch", target, "int8", tmp_path)
    assert found["from the known pitch, cents"] < 5 and found["within 50 cents of it"] > 0.97


def test_object_detection(tmp_path: Path) -> None:
    found = figures("object-detection", "xnnpack", "int8, boxes in float", tmp_path)
    assert found["expected objects"] >= 0.9 and found["their overlap"] > 0.85


def test_selfie_segmentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_QNN", "twin")
    assert figures("selfie-segmentation", "xnnpack", "float", tmp_path)["same pixels"] > 0.9999
    assert figures("selfie-segmentation", "sm8550", "a16w8", tmp_path)["overlap with float"] > 0.97


def test_speech_recognition(tmp_path: Path) -> None:
    """Every word, as the transcription has it."""
    found = figures("speech-recognition", "xnnpack", "dynamic", tmp_path)
    assert found == {"word errors": 0, "word errors against float": 0}


def test_time(tmp_path: Path) -> None:
    application: Any = find("pitch")
    rows, _ = measure(application, "xnnpack", "float", tmp_path)
    assert 0 < measure_time(tmp_path / rows[0].file, application.parts()["forward"].evaluation[0], seconds=0.01) < 1e4
