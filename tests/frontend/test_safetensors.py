"""Weights from ``.safetensors`` files: right, mapped, and safe whatever the file says."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from edgewright.demo import WEIGHTS
from edgewright.demo.model import CifarNet
from edgewright.errors import EdgewrightError, FileAccessError, FormatError, UsageError
from edgewright.formats.safetensors import ITEMSIZE, MAX_HEADER
from edgewright.frontend.export import export
from edgewright.frontend.safetensors import DTYPES, load_weights, read_weights


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def save(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    names = {dtype: name for name, dtype in DTYPES.items()}
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        header[name] = entry(names[tensor.dtype], list(tensor.shape), [len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(file_of(text + b" " * (-len(text) % 8), data))  # the usual padding: data at a multiple of 8
    return path


# ------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("name", DTYPES)
def test_every_type(name: str, tmp_path: Path) -> None:
    tensor = torch.tensor([[0, 1, 1], [1, 0, 1]], dtype=torch.uint8).to(DTYPES[name])
    read = read_weights(save(tmp_path / "w.safetensors", {"a": torch.ones(3, dtype=torch.bool), "t": tensor}))["t"]
    assert read.dtype == DTYPES[name]
    assert read.view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


def test_metadata_scalars_and_empty_tensors() -> None:
    header = {
        "__metadata__": {"made": "by hand"},
        "none": entry(shape=[0, 3], offsets=[0, 0]),
        "one": entry(shape=[], offsets=[0, 4]),
    }
    read = read_weights(file_of(header, struct.pack("<f", 2.5)))
    assert set(read) == {"none", "one"}
    assert (read["none"].shape, read["one"].shape, read["one"].item()) == ((0, 3), (), 2.5)


def mapped(tensor: torch.Tensor, path: Path) -> bool:
    regions = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    bounds = [[int(end, 16) for end in region[0].split("-")] for region in regions]
    return any(low <= tensor.data_ptr() < high for low, high in bounds)


def test_a_file_is_mapped_and_never_written_to(tmp_path: Path) -> None:
    path = save(tmp_path / "mapped.safetensors", {"t": torch.zeros(1 << 16)})
    before = path.read_bytes()
    tensor = read_weights(path)["t"]
    assert mapped(tensor, path)
    tensor.fill_(1)
    assert path.read_bytes() == before
    assert read_weights(path)["t"].sum() == 0


def test_path_and_bytes_agree() -> None:
    by_path, by_bytes = read_weights(WEIGHTS), read_weights(WEIGHTS.read_bytes())
    assert by_path.keys() == by_bytes.keys()
    for name in by_path:
        assert torch.equal(by_path[name], by_bytes[name])


# ------------------------------------------------------------------------------------------------- hostile files

EIGHT = bytes(8)
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "starts with 8 bytes"),
    "short": (b"1234567", "starts with 8 bytes"),
    "header too long": (file_of({}, length=MAX_HEADER + 1), f"at most {MAX_HEADER} bytes"),
    "header past the end": (file_of({}, length=3), "must lie within"),
    "header of 2^64-1": (file_of({}, length=(1 << 64) - 1), "at most"),
    "not json": (file_of(b"{nothing"), "must be JSON"),
    "not text": (file_of(b"\xff\xfe{}"), "must be JSON"),
    "deep": (file_of(b"[" * 200_000), "must be JSON"),
    "long number": (file_of(b'{"t":' + b"9" * 5000 + b"}"), "must be JSON"),
    "list": (file_of([]), "must be a JSON object"),
    "repeated": (file_of(b'{"t": 1, "t": 2}'), "names must differ"),
    "entry is no object": (file_of({"t": 3}, EIGHT), "t at byte 0x8: must be an object"),
    "field missing": (file_of({"t": {"dtype": "F32", "shape": [2]}}, EIGHT), "must be an object of dtype, shape"),
    "field too many": (file_of({"t": entry(more=1)}, EIGHT), "must be an object of dtype, shape"),
    "dtype": (file_of({"t": entry("F33")}, EIGHT), r"t\.dtype at byte 0x8: must be one of BOOL"),
    "dtype is a list": (file_of({"t": entry(["F32"])}, EIGHT), r"t\.dtype"),
    "negative size": (file_of({"t": entry(shape=[-2])}, EIGHT), r"t\.shape"),
    "size is a float": (file_of({"t": entry(shape=[2.0])}, EIGHT), r"t\.shape"),
    "size is a bool": (file_of({"t": entry(shape=[True, 2])}, EIGHT), r"t\.shape"),
    "size of 2^63": (file_of({"t": entry(shape=[1 << 63])}, EIGHT), r"t\.shape"),
    "sizes that wrap": (file_of({"t": entry(shape=[1 << 32, 1 << 32])}, EIGHT), "must fit 63 bits"),
    "sizes that wrap to nothing": (file_of({"t": entry(shape=[1 << 62, 4], offsets=[0, 0])}), "must fit 63 bits"),
    "rank": (file_of({"t": entry(shape=[1] * 65, offsets=[0, 4])}, bytes(4)), r"t\.shape"),
    "offsets": (file_of({"t": entry(offsets=[8, 0])}, EIGHT), r"t\.data_offsets"),
    "one offset": (file_of({"t": entry(offsets=[8])}, EIGHT), r"t\.data_offsets"),
    "negative offset": (file_of({"t": entry(offsets=[-8, 0])}, EIGHT), r"t\.data_offsets"),
    "bytes do not fit": (file_of({"t": entry(offsets=[0, 7])}, EIGHT), "must span the tensor's 8 bytes"),
    "past the end": (file_of({"t": entry()}, bytes(7)), "must fill the 7 bytes"),
    "gap": (file_of({"t": entry(offsets=[4, 12])}, bytes(12)), "must begin at byte 0"),
    "overlap": (file_of({"t": entry(), "u": entry(offsets=[4, 12])}, bytes(12)), "must begin at byte 8"),
    "shared": (file_of({"t": entry(), "u": entry()}, EIGHT), "must begin at byte 8"),
    "left over": (file_of({"t": entry()}, bytes(9)), "must fill the 9 bytes"),
    "NaN": (file_of(b'{"t": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 8]}}', EIGHT), r"t\.shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file(case: str, tmp_path: Path) -> None:
    data, rule = BAD[case]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rule) as by_path:
        read_weights(path)
    assert str(path) in str(by_path.value)
    with pytest.raises(FormatError, match=rule):
        read_weights(data)


def test_cut_at_every_byte() -> None:
    whole = file_of({"t": entry(), "u": entry("I8", [3], [8, 11])}, bytes(11))
    assert len(read_weights(whole)) == 2
    for end in range(len(whole)):
        with pytest.raises(FormatError):
            read_weights(whole[:end])


def test_every_byte_of_the_header_changed() -> None:
    whole = file_of({"t": entry(), "u": entry("I8", [3], [8, 11])}, bytes(11))
    refused = 0
    for at in range(len(whole) - 11):
        for value in (0, 0x22, 0x2D, 0x39, 0x5B, 0xFF):
            changed = bytearray(whole)
            changed[at] = value
            try:
                read = read_weights(bytes(changed))
            except FormatError:
                refused += 1
            else:
                assert sum(t.nbytes for t in read.values()) == 11
    assert refused > 500


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.safetensors"):
        with pytest.raises(FileAccessError):
            read_weights(path)


# ------------------------------------------------------------------------------------------------ into a model


def test_a_model_without_memory_gets_the_mapped_weights() -> None:
    with torch.device("meta"):
        model = CifarNet()
    load_weights(model, WEIGHTS)
    assert all(p.device.type == "cpu" and isinstance(p, torch.nn.Parameter) for p in model.parameters())
    assert all(mapped(p, WEIGHTS) for p in model.parameters())
    assert torch.equal(model.fc.bias, read_weights(WEIGHTS)["fc.bias"])


def test_weights_of_another_type_are_converted(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    halves = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    load_weights(model, save(tmp_path / "w.safetensors", halves))
    assert model.weight.dtype == torch.float32
    assert torch.equal(model.weight, halves["weight"].float())


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(4, 3)
        self.head = torch.nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("stored", ["embed.weight", "head.weight"])
def test_a_shared_weight_is_stored_once(stored: str, tmp_path: Path) -> None:
    model = Tied()
    load_weights(model, save(tmp_path / "w.safetensors", {stored: torch.ones(4, 3)}))
    assert model.embed.weight.data_ptr() == model.head.weight.data_ptr()
    assert model.head.weight.sum() == 12


def test_an_exported_program_gets_weights_too(tmp_path: Path) -> None:
    program = export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    load_weights(program, save(tmp_path / "w.safetensors", {"weight": torch.ones(2, 2), "bias": torch.zeros(2)}))
    assert program.module()(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        ({"weight": torch.ones(2, 2)}, "these are missing; got bias"),
        ({"weight": torch.ones(2, 2), "bias": torch.ones(2), "x": torch.ones(1)}, "not the model's; got x"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(2)}, r"'weight': must have the model's shape \[2, 2\]"),
        ({f"w{i}": torch.ones(1) for i in range(9)} | {"weight": torch.ones(2, 2), "bias": torch.ones(2)}, "4 more"),
    ],
)
def test_weights_of_another_model(weights: dict[str, torch.Tensor], rule: str, tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    before = model.weight.detach().clone()
    with pytest.raises(UsageError, match=rule) as caught:
        load_weights(model, save(tmp_path / "w.safetensors", weights))
    assert isinstance(caught.value, EdgewrightError)
    assert torch.equal(model.weight, before)


def test_types_of_torch_have_the_sizes_of_the_format() -> None:
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == ITEMSIZE
