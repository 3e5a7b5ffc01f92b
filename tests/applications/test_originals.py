"""The networks of the applications compute what the software of their authors computes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.applications import object_detection, pitch, selfie_segmentation, voice_activity
from examples.applications.assets import COCO_SSD, CREPE, HUMAN_MODELS, Package
from examples.applications.tfjs import TfjsNetwork

pytestmark = pytest.mark.slow

TFJS = Package(
    "npm", "@tensorflow/tfjs", "tfjs-4.22.0.tgz",
    "56505c191e24116787477b3bb5bb1cc0cf1c2bdce8112b9c402a8a2d31cf2f00", "Apache-2.0",
)  # fmt: skip
# Runs a graph model on the CPU. Arguments: TensorFlow.js, the model, the input's name, shape and data, and then each
# output's name with the file that it is written to.
SCRIPT = """
const fs = require('fs'), path = require('path'), tf = require(process.argv[2]);
const [file, input, shape, data, ...outputs] = process.argv.slice(3);
const buffer = (b) => b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
(async () => {
  const { modelTopology, weightsManifest } = JSON.parse(fs.readFileSync(file));
  const weightSpecs = weightsManifest.flatMap((group) => group.weights);
  const paths = weightsManifest.flatMap((group) => group.paths).map((p) => path.join(path.dirname(file), p));
  const weightData = buffer(Buffer.concat(paths.map((p) => fs.readFileSync(p))));
  await tf.setBackend('cpu');
  const net = await tf.loadGraphModel({ load: async () => ({ modelTopology, weightSpecs, weightData }) });
  const x = tf.tensor(new Float32Array(buffer(fs.readFileSync(data))), JSON.parse(shape));
  const found = [await net.executeAsync({ [input]: x }, outputs.filter((_, i) => i % 2 === 0))].flat();
  found.forEach((t, i) => fs.writeFileSync(outputs[2 * i + 1], Buffer.from(Float32Array.from(t.dataSync()).buffer)));
})();
"""


def run_tfjs(folder: Path, model: Path, name: str, image: torch.Tensor, outputs: list[str]) -> list[torch.Tensor]:
    """Outputs of a graph model in TensorFlow.js, flat. ``image``: channels first."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    script, data = folder / "run.js", folder / "input"
    script.write_text(SCRIPT)
    x = image.permute(0, 2, 3, 1).contiguous()
    data.write_bytes(x.numpy().tobytes())
    paths = [folder / f"output{number}" for number in range(len(outputs))]
    pairs = [str(part) for pair in zip(outputs, paths, strict=True) for part in pair]
    words = ["node", str(script), str(TFJS.path("package/dist/tf.min.js")), str(model), name, json.dumps(list(x.shape))]
    subprocess.run([*words, str(data), *pairs], check=True, timeout=600, capture_output=True)
    return [torch.from_numpy(np.fromfile(path, np.float32)) for path in paths]


def test_selfie_segmentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = selfie_segmentation.APPLICATION.parts()["forward"]
    (x,) = part.evaluation[0]
    HUMAN_MODELS.path("package/models/selfie.bin")
    model = HUMAN_MODELS.path("package/models/selfie.json")
    (theirs,) = run_tfjs(tmp_path, model, "input_1", x.float() / 255, ["activation_10"])
    with torch.no_grad():
        ours = part.model(x).flatten()
        # The file has 1/6 in 16 bits: each hardswish that is recognized is more exact than the file's.
        assert (ours - theirs).abs().mean() < 1e-4 and ((ours > 0.5) == (theirs > 0.5)).float().mean() > 0.999
        monkeypatch.setattr(TfjsNetwork, "_hardswish", lambda network, sources: None)
        literal = selfie_segmentation.Segmenter().eval()(x).flatten()
    torch.testing.assert_close(literal, theirs, atol=5e-4, rtol=0)


def test_object_detection(tmp_path: Path) -> None:
    part = object_detection.APPLICATION.parts()["forward"]
    (x,) = part.evaluation[0]
    for number in range(1, 6):
        COCO_SSD.path(f"package/models/coco-ssd/group1-shard{number}of5")
    model = COCO_SSD.path("package/models/coco-ssd/model.json")
    # From where the photograph has its size: TensorFlow.js and Pillow make it smaller in other ways.
    outputs = ["Postprocessor/convert_scores", "Postprocessor/ExpandDims_1"]
    scores, boxes = run_tfjs(tmp_path, model, "Preprocessor/sub", x.float() * (2 / 255) - 1, outputs)
    with torch.no_grad():
        found_boxes, found_scores = part.model(x)
    torch.testing.assert_close(found_scores.flatten(), scores, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found_boxes.flatten(), boxes, atol=1e-4, rtol=1e-3)


def test_voice_activity() -> None:
    """The package's own program gives each window of the recording the same probability."""
    part = voice_activity.APPLICATION.parts()["forward"]
    original = voice_activity.original()
    original.reset_states()
    windows = voice_activity.windows(voice_activity.recording()[0])[:200]
    with torch.no_grad():
        theirs = torch.cat([original(window, 16000) for window in windows])
        ours = torch.cat([part.model(window) for window in windows])
    assert theirs.max() > 0.9 and theirs.min() < 0.1
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_pitch() -> None:
    """torchcrepe's module, without the rest of its package, which needs librosa."""
    source = CREPE.path("torchcrepe/model.py").read_text().replace("import torchcrepe", "")
    names: dict[str, object] = {"torchcrepe": type("Constants", (), {"PITCH_BINS": pitch.BINS})}
    exec(source, names)
    theirs = names["Crepe"]("tiny")  # type: ignore[operator]
    theirs.load_state_dict(torch.load(CREPE.path("torchcrepe/assets/tiny.pth"), weights_only=True))
    window = pitch.APPLICATION.parts()["forward"].evaluation[0][0]
    centered = (window - window.mean()) / window.std()
    with torch.no_grad():
        torch.testing.assert_close(pitch.crepe()(window), theirs.eval()(centered), atol=1e-5, rtol=1e-4)
