"""``examples/qualcomm``: data sets that are fetched or given, and flags as ExecuTorch's scripts have them."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from edgewright.errors import ExecutionError, FileAccessError, FormatError, InputError, MissingError, UsageError
from edgewright.formats.etrecord import IDENTIFIER
from tests.docs.test_qualcomm import SCRIPTS, flow, from_the_root, script  # noqa: F401
from tests.support.http_server import HttpServer, Site

BODY = bytes(range(256)) * 5000
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


@pytest.fixture
def site() -> Iterator[Site]:
    server = HttpServer(Site(BODY))
    server.site.address = server.address  # type: ignore[attr-defined]
    yield server.site
    server.close()


def fetch(site: Any, target: Path, md5: str = MD5) -> Path:
    found: Path = importlib.import_module("examples.qualcomm.download").fetch(site.address, target, md5, "Do without.")
    return found


def test_a_file_is_fetched_once(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "sets" / "set.tar"
    assert fetch(site, target).read_bytes() == BODY
    assert fetch(site, target) == target and site.asked == [""]
    assert [path.name for path in target.parent.iterdir()] == ["set.tar"]


def test_what_breaks_off_goes_on_where_it_was(site: Site, tmp_path: Path) -> None:
    site.breaks = [700_000, 300_000]
    assert fetch(site, tmp_path / "set.tar").read_bytes() == BODY
    assert site.asked == ["", "bytes=700000-", "bytes=1000000-"]


def test_a_site_that_gives_no_parts_is_asked_for_all_of_it(site: Site, tmp_path: Path) -> None:
    site.breaks, site.ranges = [700_000], False
    assert fetch(site, tmp_path / "set.tar").read_bytes() == BODY
    assert site.asked == ["", "bytes=700000-"]


def test_what_cannot_be_had_leaves_nothing_and_says_so(site: Site, tmp_path: Path) -> None:
    site.breaks = [10, 10, 10]
    with pytest.raises(MissingError, match="cannot be fetched: ended after 30 of 1280000 bytes") as raised:
        fetch(site, tmp_path / "set.tar")
    assert "Is there a network? Do without." in str(raised.value) and not list(tmp_path.iterdir())
    site.status = 404
    with pytest.raises(MissingError, match="cannot be fetched: Not Found"):
        fetch(site, tmp_path / "set.tar")
    assert len(site.asked) == 4 and not list(tmp_path.iterdir())  # a refusal is not asked again


def test_without_a_network_it_says_so(tmp_path: Path) -> None:
    server = HttpServer(Site(b""))
    server.close()
    with pytest.raises(MissingError, match=r"cannot be fetched: .*refused"):
        importlib.import_module("examples.qualcomm.download").fetch(server.address, tmp_path / "x", MD5, "")
    assert not list(tmp_path.iterdir())


def test_a_changed_file_is_refused_and_an_old_one_stays(site: Site, tmp_path: Path) -> None:
    (tmp_path / "set.tar").write_bytes(b"old")
    with pytest.raises(FormatError, match=f"must have the MD5 {'0' * 32}; got {MD5}"):
        fetch(site, tmp_path / "set.tar", "0" * 32)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("set.tar", b"old")]
    assert fetch(site, tmp_path / "set.tar").read_bytes() == BODY
    (tmp_path / "file").write_text("")
    with pytest.raises(FileAccessError, match="cannot be written"):
        fetch(site, tmp_path / "file" / "set.tar")


def picture(shade: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (20, 30), (shade, shade, shade)).save(data, "JPEG")
    return data.getvalue()


def archive(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as file:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            file.addfile(info, io.BytesIO(body))
    return data.getvalue()


VOC = {
    "VOCdevkit/VOC2009/ImageSets/Segmentation/val.txt": b"2009_000001\n2009_000002\n2009_000003\n",
    "VOCdevkit/VOC2009/JPEGImages/2009_000001.jpg": picture(255),
    "VOCdevkit/VOC2009/JPEGImages/2009_000002.jpg": picture(0),
}


def serve_voc(monkeypatch: pytest.MonkeyPatch, site: Any, body: bytes) -> Any:
    voc = importlib.import_module("examples.qualcomm.voc")
    site.body = body
    monkeypatch.setattr(voc, "ADDRESS", site.address)
    monkeypatch.setattr(voc, "MD5", hashlib.md5(body, usedforsecurity=False).hexdigest())
    return voc


def test_download_gives_images_of_the_set(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_voc(monkeypatch, site, archive(VOC))
    found = script("deeplab_v3")
    args = flow().flags.parsed(flow().arguments(found), ["-m", "SM8550", "-d", "--count", "2", "--size", "16"])
    data = flow().inputs_of(found, args)
    assert [tuple(x.shape) for (x,) in data] == [(1, 3, 16, 16)] * 2
    white = torch.tensor([(1 - m) / s for m, s in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))])
    assert torch.allclose(data[0][0][0, :, 8, 8], white, atol=0.02) and data[1][0].max() < -1.7
    flow().inputs_of(found, args)
    assert len(site.asked) == 1  # the archive stays


def test_an_archive_that_is_not_the_sets_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    voc = serve_voc(monkeypatch, site, archive(VOC))
    with pytest.raises(FormatError, match=r"must hold VOCdevkit/VOC2009/JPEGImages/2009_000003\.jpg"):
        voc.download(Path("a"), 3, 16)
    outside = VOC | {"VOCdevkit/VOC2009/ImageSets/Segmentation/val.txt": b"../../../../evil\n"}
    outside["VOCdevkit/VOC2009/JPEGImages/../../../../evil.jpg"] = picture(9)
    serve_voc(monkeypatch, site, archive(outside)).download(Path("b"), 1, 16)
    assert [p.name for p in Path("b/voc_image").glob("*.jpg")] == ["evil.jpg"]  # in the folder, whatever it says
    with pytest.raises(FormatError, match="must be PASCAL VOC's archive"):
        serve_voc(monkeypatch, site, b"no archive" * 100).download(Path("c"), 1, 16)


def test_data_sets_are_folders_or_arrays_of_the_right_shape() -> None:
    found = script("mobilenet_v2")
    for name, shade in (("b/2.jpg", 0), ("a/1.jpg", 255)):
        (Path("val") / name).parent.mkdir(parents=True, exist_ok=True)
        (Path("val") / name).write_bytes(picture(shade))
    args = flow().flags.parsed(flow().arguments(found), ["-m", "SM8550", "-d", "val", "--count", "9", "--size", "16"])
    bright, dark = flow().inputs_of(found, args)
    assert bright[0].min() > 2 and dark[0].max() < -1.7
    np.savez("x.npz", np.zeros((1, 3, 8, 8), np.float32))
    args.dataset = "x.npz"
    with pytest.raises(InputError, match=r"must be \[1, 3, 16, 16\] torch.float32; got \[1, 3, 8, 8\]"):
        flow().inputs_of(found, args)
    Path("empty").mkdir()
    args.dataset = "empty"
    with pytest.raises(UsageError, match="empty: must hold images"):
        flow().inputs_of(found, args)


def stock_flags(name: str) -> set[str]:
    """What ExecuTorch's script takes, by reading it and what it shares with the others."""
    found = importlib.import_module("executorch").__path__[0]
    texts = [(Path(found) / "examples/qualcomm/scripts" / f"{name}.py").read_text()]
    if name != "export_example":
        shared = (Path(found) / "backends/qualcomm/export_utils.py").read_text()
        texts.append(shared[shared.index("def setup_common_args_and_variables") :])
    return {flag for text in texts for flag in re.findall(r'^\s+"(--?\w+)",$', text, re.MULTILINE)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_take_the_flags_that_executorchs_take(name: str) -> None:
    wanted = stock_flags(name)
    assert len(wanted) > 20
    assert wanted - set(flow().arguments(script(name))._option_string_actions) == set()


def test_export_example_takes_the_flags_that_executorchs_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stock_flags("export_example") == {
        "-m", "--model_name", "-g", "--generate_etrecord", "-f", "--output_folder", "--soc", "-q", "--quantization"
    }  # fmt: skip
    example = importlib.import_module("examples.qualcomm.scripts.export_example")
    given: dict[str, Any] = {}
    monkeypatch.setattr(example, "main", lambda chosen, flags: given.update(script=chosen, flags=flags) or 0)
    assert example.run(["-m", "mv2", "-g", "-f", "out", "-q", "qat"]) == 0
    chosen = given["script"]
    assert (chosen.file, chosen.scheme.name, chosen.training, chosen.record) == (
        "mv2",
        "use_8a8w",
        True,
        "etrecord.bin",
    )
    assert given["flags"][:4] == ["-m", "SM8650", "-a", "out"]


def tiny(**changes: Any) -> Any:
    from dataclasses import replace

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    return replace(script("edsr"), name="tiny", file="tiny", make=lambda args: net, **changes)


@pytest.mark.parametrize("training", [False, True])
def test_an_etrecord_is_written_with_and_without_training(training: bool) -> None:
    chosen = tiny(training=training, record="etrecord.bin")
    assert flow().main(chosen, ["-m", "SM8550", "-c", "--ci", "--size", "8"]) == 0
    assert Path("tiny/tiny.pte").stat().st_size > 1000
    assert IDENTIFIER.encode() in Path("tiny/etrecord.bin").read_bytes()


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--online_prepare"], "--online_prepare: is not supported"), (["--ip", "h"], "--ip: is not supported"),
     (["--port", "9"], "--port: is not supported"), (["--backend", "gpu"], "--backend: must be htp; got gpu"),
     (["--dump_intermediate_outputs"], "edgewright compare"), (["--direct_build_folder", "x"], "is not supported"),
     (["--target", "x"], "--target: must be aarch64-android; got x"), (["--count", "0"], "--count: must be at least 1"),
     (["-c", "--pre_gen_pte", "."], "must be left out with --compile_only"), (["-d"], "Get DIV2K"),
     (["-r", "x"], "--hr_ref_dir: is not supported")],
)  # fmt: skip
def test_what_is_not_done_is_refused_in_words(flags: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        flow().main(tiny(), ["-m", "SM8550", "--size", "8", *flags])


def test_flags_come_from_a_file_too() -> None:
    Path("x.json").write_text(json.dumps({"soc_model": "SM8650", "count": 3, "seed": None}))
    parser = flow().arguments(script("edsr"))
    args = flow().flags.parsed(parser, ["--config_file", "x.json", "--count", "2"])
    assert (args.soc_model, args.count, args.seed) == ("SM8650", 2, 0)
    Path("x.json").write_text('{"wrong": 1}')
    with pytest.raises(UsageError, match="must be an object of flags by name; got wrong"):
        flow().flags.parsed(parser, ["--config_file", "x.json"])
    with pytest.raises(FileAccessError):
        flow().flags.parsed(parser, ["--config_file", "none.json"])
    with pytest.raises(UsageError, match="-m: must name the SoC"):
        flow().flags.parsed(flow().arguments(script("edsr")), [])


def test_weights_come_as_torch_saved_them() -> None:
    net = torch.nn.Linear(2, 2)
    torch.save({name: torch.ones_like(value) for name, value in net.state_dict().items()}, "w.pt")
    flow().give_weights(net, "w.pt")
    assert torch.equal(net.weight, torch.ones(2, 2))
    with pytest.raises(FormatError, match="must be the model's weights"):
        flow().give_weights(torch.nn.Linear(3, 2), "w.pt")


def test_mobilebert_is_quantized_unless_asked_otherwise() -> None:
    found = script("mobilebert_fine_tune")
    chosen = []
    for flags in ([], ["-F"], ["-P", "16a8w"]):
        chosen.append(found.adapt(found, flow().flags.parsed(flow().arguments(found), ["-m", "SM8550", *flags])))
    assert [c.file for c in chosen] == ["ptq_mb_qnn", "mb_qnn", "ptq_mb_qnn"]
    assert [c.scheme and c.scheme.name for c in chosen] == ["use_8a8w", None, "use_16a8w"]


def test_results_that_are_no_numbers_are_an_error() -> None:
    ones, bad = np.ones((1, 2)), np.array([[1, np.nan]])
    with pytest.raises(ExecutionError, match="outputs: must be finite; got 1 of 2"):
        flow().top_one([[ones]], [[bad]])


def test_a_script_that_fails_says_so_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiny", "-m", "SM1", "-c", "--size", "8"])
    with pytest.raises(SystemExit) as ended:
        flow().script_main(tiny())
    assert ended.value.code == UsageError.exit_code and "SM1" in capsys.readouterr().err
