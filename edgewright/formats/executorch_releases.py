"""ExecuTorch's releases: which operators each of them has kernels for, and the names of the runtimes to compile for.

No release has dropped an operator, so the first one that has it tells the rest. The table is what the wheels register,
except for kernels that were there earlier but gave wrong results; ``tests/interop/stock_releases`` compares it with the
wheels. The Android package and the iOS frameworks are built from the same kernel libraries.
"""

from __future__ import annotations

from functools import cache

from edgewright.formats.operator_signatures import operators

RELEASES = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5")
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]

_ADDED = {
    "1.1": (
        "aten::bitwise_left_shift.Tensor_Scalar_out", "aten::bitwise_left_shift.Tensor_out",
        "aten::bitwise_right_shift.Tensor_Scalar_out", "aten::bitwise_right_shift.Tensor_out",
        "aten::grid_sampler_2d.out",
    ),
    "1.2": ("aten::_conj_physical.out",),
    "1.3": ("aten::_adaptive_avg_pool2d.out", "aten::var_mean.correction_out"),
    "1.4": (
        "aten::_upsample_bilinear2d_aa.out",  # wrong before where it shrinks to a fifth or less
        "et_copy::_d2h_copy.out", "et_copy::_h2d_copy.out", "executorch_prim::sym_int.Scalar",
        "executorch_prim::sym_ite.Scalar", "executorch_prim::sym_not.Scalar",
    ),
}  # fmt: skip
_FIRST_RELEASE = {key: release for release, keys in _ADDED.items() for key in keys}

BUILDS = ("wheel", "android", "ios", "cortex-m", "portable-only")
RUNTIMES = (*BUILDS, *(f"{build}-{release}" for build in BUILDS for release in RELEASES))


def first_release(key: str) -> str:
    """The first release (of those listed) that has an operator.

    >>> first_release("aten::add.out"), first_release("aten::grid_sampler_2d.out")
    ('1.0', '1.1')
    """
    return _FIRST_RELEASE.get(key, OLDEST)


@cache
def operators_of(release: str) -> frozenset[str]:
    """The operators of a release."""
    index = RELEASES.index(release)
    return frozenset(key for key in operators() if RELEASES.index(first_release(key)) <= index)


def split_runtime(name: str) -> tuple[str, str]:
    """The build and the release that a name of a runtime means: the oldest release, if it names none.

    >>> split_runtime("android"), split_runtime("portable-only-1.3")
    (('android', '1.0'), ('portable-only', '1.3'))
    """
    build, _, release = name.rpartition("-")
    return (build, release) if release in RELEASES else (name, OLDEST)
