"""Samples of convolution and its gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.values import FLOATS, normal, unlike_stock


@dataclass(frozen=True)
class Conv:
    """A convolution of ``rank`` dimensions from ``c`` to ``o`` channels."""

    size: tuple[int, ...] = (5, 6)
    kernel: tuple[int, ...] = (3, 2)
    c: int = 2
    o: int = 4
    n: int = 2
    stride: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    dilation: tuple[int, ...] = (1,)
    transposed: bool = False
    extra: tuple[int, ...] = (0,)
    groups: int = 1
    dtype: str = "float32"
    bias: bool = True

    def args(self) -> list:
        rank = len(self.kernel)
        inner, outer = (self.c, self.o // self.groups) if self.transposed else (self.o, self.c // self.groups)
        spread = [list(v * rank if len(v) == 1 else v) for v in (self.stride, self.padding, self.dilation)]
        x = normal(self.dtype, self.n, self.c, *self.size, scale=1.0)
        w = normal(self.dtype, inner, outer, *self.kernel, seed=1, scale=0.5)
        b = normal(self.dtype, self.o, seed=2) if self.bias else None
        return [
            x,
            w,
            b,
            *spread,
            self.transposed,
            list(self.extra * rank if len(self.extra) == 1 else self.extra),
            self.groups,
        ]

    def sample(self, note: str = "") -> Sample:
        return Sample("aten::convolution.out", self.args(), note=note)


PLAIN = [
    Conv(),
    Conv(bias=False, stride=(2,), padding=(1,)),
    Conv(stride=(2, 3), padding=(1, 0), dilation=(1, 2), size=(7, 9)),
    Conv(dilation=(2,), padding=(2,), groups=2),
    Conv(groups=2, stride=(3,), padding=(2, 1)),
    Conv(c=4, o=4, groups=4, kernel=(3, 3), padding=(1,), stride=(2,)),
    Conv(c=3, o=6, groups=3, kernel=(3, 3)),
    Conv(kernel=(1, 1), o=3),
    Conv(kernel=(1, 1), o=3, stride=(2,)),
    Conv(size=(2, 2), kernel=(1, 1), padding=(2,), n=1),
    Conv(size=(1, 1), kernel=(3, 3), padding=(3,), stride=(2,), n=1),
    Conv(size=(5, 6), kernel=(5, 6)),
    Conv(n=0),
    Conv(size=(9,), kernel=(3,), padding=(1,)),
    Conv(size=(9,), kernel=(4,), stride=(2,), dilation=(2,), c=4, groups=2),
    Conv(size=(9,), kernel=(3,), c=4, o=4, groups=4),
    Conv(size=(4, 3, 5), kernel=(2, 2, 3), padding=(1, 0, 1), stride=(1, 1, 2)),
    Conv(size=(4, 3, 5), kernel=(2, 1, 3), groups=2, dilation=(2, 1, 1)),
]
TRANSPOSED = [
    Conv(transposed=True),
    Conv(transposed=True, stride=(2,), padding=(1,), extra=(1,)),
    Conv(transposed=True, stride=(2, 3), padding=(0, 1), extra=(0, 2), groups=2, bias=False),
    Conv(transposed=True, dilation=(2, 1), extra=(1, 0)),
    Conv(transposed=True, c=4, o=4, groups=4, stride=(2,), kernel=(3, 3)),
    Conv(transposed=True, stride=(4,), kernel=(1, 2)),
    Conv(transposed=True, size=(5,), kernel=(3,), stride=(2,)),
    Conv(transposed=True, size=(2, 3, 2), kernel=(2, 2, 3), stride=(2, 1, 2), groups=2),
    Conv(transposed=True, n=0),
]


def forward() -> list[Sample]:
    found = [conv.sample() for conv in (*PLAIN, *TRANSPOSED)]
    for dtype in FLOATS[1:]:
        found += [replace(c, dtype=dtype).sample() for c in (PLAIN[1], PLAIN[5], TRANSPOSED[1])]
    found += [replace(PLAIN[1], dtype=d, bias=False).sample() for d in ("int32", "int64", "uint8", "int8")]
    for conv in (PLAIN[0], PLAIN[1], PLAIN[5], PLAIN[7], TRANSPOSED[1]):
        x, w, *rest = conv.args()
        last = (0, 2, 3, 1)
        found.append(Sample("aten::convolution.out", [channels_last(x), w, *rest], dim_order=last))
        found.append(Sample("aten::convolution.out", [channels_last(x), channels_last(w), *rest]))
    x, w, b, *_ = Conv().args()
    found.append(Sample("aten::convolution.out", [x, w, b, [1], [1], [1], False, [0], 1], note="one number for all"))
    return found


def backward() -> list[Sample]:
    import torch

    found = []
    chosen = [*(PLAIN[i] for i in (0, 1, 2, 4, 5, 7, 13, 14, 16)), *TRANSPOSED[:5], TRANSPOSED[6]]
    for conv in (*chosen, replace(PLAIN[1], dtype="float64"), replace(TRANSPOSED[1], dtype="float64")):
        x, w, _, *rest = conv.args()
        shape = torch.convolution(torch.from_numpy(x), torch.from_numpy(w), None, *rest).shape
        grad = normal(conv.dtype, *shape, seed=3)
        args = [grad, x, w, [conv.o], *rest, [True, True, True]]
        found.append(Sample("aten::convolution_backward.out", args, rtol=2e-5, atol=2e-5))
    return found


def reason(sample: Sample) -> str:
    backward = "backward" in sample.key
    x, w = sample.args[1:3] if backward else sample.args[:2]
    if w.ndim == 5 or (backward and w.ndim == 3):
        return "two dimensions" if backward else "one or two dimensions"
    if backward and sample.args[7]:
        return "no gradient of transposed convolution"
    if x.itemsize == 2:
        return "rounds each partial sum"
    mixed = sample.dim_order is None and not x.flags.c_contiguous
    return "output must have the input's dim order" if mixed else ""


SAMPLES = unlike_stock([*forward(), *backward()], reason)
