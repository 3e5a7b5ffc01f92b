"""Calibration data from everywhere people keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import edgewright as ew
from edgewright.api.data import Call, load_calls
from edgewright.api.image_data import ImageOptions
from edgewright.errors import FileAccessError, InputError, UsageError
from tests.api.models import calls

EXAMPLE = Call((torch.zeros(1, 3, 8, 8),))
MANY = np.concatenate([c.numpy() for c in calls(4)])


def held(found: list[Call]) -> np.ndarray:
    return np.concatenate([c.args[0].numpy() for c in found])


@pytest.mark.parametrize("shape", ["batch", "extra"])
@pytest.mark.parametrize("ending", ["npy", "npz", "folder"])
def test_arrays(tmp_path: Path, ending: str, shape: str) -> None:
    array = MANY if shape == "batch" else MANY[:, None]
    path = tmp_path / f"data.{ending}"
    if ending == "npy":
        np.save(path, array)
    elif ending == "npz":
        np.savez(path, in0=array, labels=np.arange(4))
    else:
        path.mkdir()
        for i, piece in enumerate(array):
            np.save(path / f"{i}.npy", piece if shape == "extra" else piece[None])
    assert np.array_equal(held(load_calls(path, EXAMPLE)), MANY)
    assert len(load_calls(str(path), EXAMPLE, limit=2)) == 2


@pytest.mark.parametrize(
    "given", [calls(4), [(c,) for c in calls(4)], [c[0] for c in calls(4)], torch.from_numpy(MANY), MANY,
              iter(calls(4)), [c.numpy() for c in calls(4)]],
)  # fmt: skip
def test_python(given: Any) -> None:
    assert np.array_equal(held(load_calls(given, EXAMPLE)), MANY)


@pytest.mark.parametrize("factor", [np.float32(1.5), np.asarray(1.5, np.float32), torch.tensor(1.5)])
def test_scalars_stay_scalars(factor: Any) -> None:
    example = Call((torch.zeros(1, 3, 8, 8), torch.tensor(1.0)))
    (call,) = load_calls([(MANY[:1], factor)], example)
    assert call.args[1].shape == () and call.args[1] == 1.5


def test_by_name() -> None:
    assert len(load_calls("tests.api.models:stream", EXAMPLE)) == 8
    assert len(load_calls("tests.api.models:calls", EXAMPLE)) == 8


def test_inputs_by_name() -> None:
    example = Call((), {"x": torch.zeros(2)})
    assert load_calls([{"x": np.ones(2, np.float32)}], example)[0].kwargs["x"].tolist() == [1, 1]
    with pytest.raises(InputError, match="dict by name"):
        load_calls([torch.ones(2)], example)


def test_images(tmp_path: Path) -> None:
    from PIL import Image

    picture = np.zeros((16, 32, 3), np.uint8)
    picture[:, 8:24] = (255, 127, 0)  # the middle square
    Image.fromarray(picture).save(tmp_path / "a.png")
    (found,) = load_calls(tmp_path, EXAMPLE, images=ImageOptions((127.0,), (128.0,)))
    assert found.args[0].shape == (1, 3, 8, 8)
    assert found.args[0][0, :, 4, 4].tolist() == [1.0, 0.0, -0.9921875]
    last = Call((torch.zeros(1, 8, 8, 3),))
    (found,) = load_calls(tmp_path, last, images=ImageOptions((127.0, 0.0, 0.0), (128.0, 127.0, 1.0)))
    assert found.args[0][0, 4, 4].tolist() == [1.0, 1.0, 0.0]


def test_images_need_to_be_told_how(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match="--mean 127 --std 128"):
        load_calls(tmp_path, EXAMPLE)
    with pytest.raises(InputError, match="one input of"):
        load_calls(tmp_path, Call((torch.zeros(4),)), images=ImageOptions((0.0,), (1.0,)))
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match="cannot be read as an image"):
        load_calls(tmp_path, EXAMPLE, images=ImageOptions((0.0,), (1.0,)))
    with pytest.raises(UsageError, match="must not be 0"):
        ImageOptions((0.0,), (0.0,))


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ("nowhere.npz", FileAccessError, "cannot be opened|does not exist"),
        ("nowhere", FileAccessError, "does not exist"),
        ([], InputError, "at least one"),
        (7, UsageError, "iterable of inputs"),
        ({"x": 1}, UsageError, "iterable of inputs"),
        (["text"], InputError, "tensors or numbers"),
        ([torch.ones(3)], InputError, r"rank of the example(.|\n)*Reshape it to \[N, 3, 8, 8\]"),
        ([torch.zeros(1, 3, 8, 8, dtype=torch.int64)], InputError, "must be torch.float32"),
        ([(torch.zeros(1, 3, 8, 8),) * 2], InputError, "must have 1 input;"),
    ],
)
def test_wrong_data(given: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        load_calls(given, EXAMPLE)


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    np.save(tmp_path / "x.npy", np.array([Payload()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError):
        load_calls(tmp_path / "x.npy", EXAMPLE)
    assert not (tmp_path / "executed").exists()


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must contain images"):
        load_calls(tmp_path, EXAMPLE)


def test_code_of_the_users_that_raises_is_not_our_bug() -> None:
    def broken() -> Any:
        yield calls(1)[0]
        raise RuntimeError("disk on fire")

    with pytest.raises(InputError, match="raised RuntimeError: disk on fire"):
        load_calls(broken(), EXAMPLE)


def test_inputs_that_the_model_cannot_take() -> None:
    import edgewright as ew
    from tests.api.models import net

    wrong = [calls(1)[0], torch.zeros(1, 4, 8, 8)]
    for quantize in ("int8", None):
        told = r"calibration input 1: the model cannot be called with it(.|\n)*shape \[1, 4, 8, 8\]; .* with \["
        with pytest.raises(InputError, match=told):
            ew.compile(net(), calls(1)[0], "xnnpack", quantize=quantize, calibration=wrong)


def test_inputs_that_are_no_numbers() -> None:
    import edgewright as ew
    from tests.api.models import net

    example = calls(1)[0]
    wrong = [example, tuple(torch.full_like(x, float("nan")) for x in example)]
    with pytest.raises(InputError, match="calibration input 1: must hold numbers; got NaN"):
        ew.compile(net(), example, "xnnpack", quantize="int8", calibration=wrong)


def photos(folder: Path, count: int = 2) -> Path:
    from PIL import Image

    folder.mkdir()
    for i in range(count):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def test_pixels_for_models_that_take_uint8(tmp_path: Path) -> None:
    example, folder = Call((torch.zeros(1, 8, 8, 3, dtype=torch.uint8),)), photos(tmp_path / "photos")
    first = load_calls(folder, example)[0].args[0]
    assert first.dtype == torch.uint8
    assert np.array_equal(first[0].numpy(), np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    with pytest.raises(UsageError, match="must not be normalized for a model that takes uint8"):
        load_calls(folder, example, images=ImageOptions((0.0,), (255.0,)))
    with pytest.raises(InputError, match=r"(?s)take uint8 or float32; got float16.*pass an .npz of float16"):
        load_calls(folder, Call((torch.zeros(1, 3, 8, 8, dtype=torch.float16),)))


def test_images_and_arrays_for_inputs_by_name(tmp_path: Path) -> None:
    options = ImageOptions((0.0,), (255.0,))
    example = Call((), {"pixel_values": torch.zeros(1, 3, 8, 8)})
    (call, _) = load_calls(photos(tmp_path / "photos"), example, images=options)
    assert (call.args, list(call.kwargs)) == ((), ["pixel_values"])
    assert call.kwargs["pixel_values"].shape == (1, 3, 8, 8)
    two = Call((), {"ids": torch.zeros(1, 4, dtype=torch.int64), "mask": torch.zeros(1, 4)})
    np.savez(tmp_path / "d.npz", mask=np.ones((3, 4), np.float32), ids=np.arange(12).reshape(3, 4), labels=np.zeros(3))
    found = load_calls(tmp_path / "d.npz", two)
    assert [list(c.kwargs) for c in found] == [["ids", "mask"]] * 3
    assert found[1].kwargs["ids"].tolist() == [[4, 5, 6, 7]]
    with pytest.raises(InputError, match=r"(?s)mask: must be torch.float32; got torch.int64.*x.to\(torch.float32\)"):
        load_calls([{"ids": torch.zeros(1, 4, dtype=torch.int64), "mask": torch.zeros(1, 4, dtype=torch.int64)}], two)


class Cell(nn.Module):
    """A cell whose state is a tuple, beside a dict of options."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor], extra: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = self.cell(x * extra["gain"] + extra["bias"], state)
        return h, c


def _cell_inputs(bias_first: bool = False) -> tuple[Any, ...]:
    extra = {"gain": torch.rand(9, 4), "bias": torch.rand(9, 4)}
    if bias_first:
        extra = dict(reversed(extra.items()))
    return torch.rand(9, 4), (torch.rand(9, 4), torch.rand(9, 4)), extra


def test_inputs_that_are_tuples_and_dicts() -> None:
    torch.manual_seed(0)
    cell, batches = Cell().eval(), [_cell_inputs(bias_first=n % 2 == 1) for n in range(8)]
    result = ew.compile(cell, batches[0], "xnnpack", quantize="int8", calibration=batches, quiet=True)
    assert result.report.sqnr is not None and result.report.sqnr > 25
    wrong = [(batches[0][0], batches[0][1], {"gain": torch.rand(9, 4)})]
    with pytest.raises(InputError, match="must be structured as the example input, a dict"):
        ew.compile(cell, batches[0], "xnnpack", quantize="int8", calibration=wrong, quiet=True)
