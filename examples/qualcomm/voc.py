"""Images of PASCAL VOC 2009: the archive is fetched once, and only the images that are used are taken out of it."""

from __future__ import annotations

import tarfile
from pathlib import Path

from edgewright.errors import FormatError
from examples.qualcomm.download import fetch
from examples.qualcomm.pictures import Inputs, from_folder

ADDRESS = "https://thor.robots.ox.ac.uk/pascal/VOC/voc2009/VOCtrainval_11-May-2009.tar"
MD5 = "a3e00b113cfcfebf17e343f59da3caa1"
_INSIDE = "VOCdevkit/VOC2009"
_INSTEAD = "Without --download inputs are random; --dataset takes a folder of images, or an .npz."
_LARGEST = 64 << 20  # bytes of an image or a list


def download(folder: Path, count: int, size: int) -> list[Inputs]:
    """The first images of the set that segmentation is tested with, as DeepLabV3 takes them."""
    place = folder / "voc_image"
    archive = fetch(ADDRESS, place / ADDRESS.rpartition("/")[2], MD5, _INSTEAD)
    try:
        with tarfile.open(archive) as file:
            names = _read(file, "ImageSets/Segmentation/val.txt").decode("ascii").split()[:count]
            for name in names:
                (place / f"{Path(name).name}.jpg").write_bytes(_read(file, f"JPEGImages/{name}.jpg"))
    except (tarfile.TarError, UnicodeDecodeError) as error:
        raise FormatError(f"must be PASCAL VOC's archive: {error}", where=archive.name, remedy=_INSTEAD) from error
    return from_folder(place, count, size)


def _read(file: tarfile.TarFile, name: str) -> bytes:
    """A member's bytes; nothing is written where the archive says."""
    try:
        member = file.getmember(f"{_INSIDE}/{name}")
    except KeyError:
        raise FormatError(f"must hold {_INSIDE}/{name}", where=str(file.name), remedy=_INSTEAD) from None
    found = file.extractfile(member) if member.isfile() and member.size <= _LARGEST else None
    if found is None:
        raise FormatError(f"must be a file of at most {_LARGEST} bytes", where=name, remedy=_INSTEAD)
    return found.read()
