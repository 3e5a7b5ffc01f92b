"""Int8 gemm micro-kernel for Arm's DSP extension (Cortex-M4, M7, M33): SMLAD on registers of two int16.

Fourteen general-purpose registers hold two pixels' operands of two output channels, their four accumulators and two
pointers: each word of data and weights that is loaded and extended serves two products, as in Lai et al., "CMSIS-NN:
Efficient Neural Network Kernels for Arm Cortex-M CPUs" (2018). A panel has four channels, in two streams of weights,
which run one after the other and requantize their results before the next one begins. A single pixel is multiplied by
all four at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, vec
from edgewright.engine.codegen.requant import REQUANTIZERS, Requantize
from edgewright.engine.codegen.vector import Int8Dot, opaque
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Window, emit_window_loops
from edgewright.engine.kernels.int8_gemm import Int8Epilogue, Int8EpilogueEmitter, Int8Panel, join_lanes


def emit_tile(module: Module, isa: ISA, pixels: int, panel: Int8Panel, window: Window, out_step: int, second_step: int,
              epilogue: Int8Epilogue) -> Function:  # fmt: skip
    """Emit ``tile(data, weights, out, second)``, like ``int8_gemm.emit_tile``, for one pixel or two."""
    name = f"tile_{pixels}_{panel.streams}_{panel.used}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    tile = _Tile(f, isa, pixels, panel, window, (out_step, second_step), epilogue)
    start = [f.arg("weights"), f.gep(f.arg("weights"), tile.head), f.arg("out"), f.arg("second")]
    if tile.channels == isa.lanes:
        tile.emit(start, panel.used)
    elif panel.used == isa.lanes:
        f.loop(panel.streams, start, lambda _, now: tile.emit(now, tile.channels))
    else:
        for done in range(0, panel.used, tile.channels):
            start = tile.emit(start, min(tile.channels, panel.used - done))
    f.ret()
    return f


class _Tile:
    def __init__(
        self, f: Function, isa: ISA, pixels: int, panel: Int8Panel, window: Window, steps: tuple[int, int],
        epilogue: Int8Epilogue,
    ) -> None:  # fmt: skip
        self.f, self.isa, self.pixels, self.window = f, isa, pixels, window
        self.steps = steps  # bytes between pixels of the output and of the second operand
        self.epilogue, self.stream = epilogue, isa.lanes // panel.streams
        self.channels = isa.lanes if pixels == 1 else self.stream
        self.params = 4 * isa.lanes * (1 + epilogue.factor_words)
        self.head = self.params + epilogue.param_bytes

    def emit(self, now: Sequence[Reg], used: int) -> list[Reg]:
        """Channels from their bias to their results, of which ``used`` are stored. ``now``: pointers to the bias and
        factors of the channels, to their weights, results and residuals; returns those of the next channels."""
        f, epilogue, kind = self.f, self.epilogue, vec(self.channels, "i32")
        constants, weights, out, second = now
        after, sums = self._multiply(f.load(kind, constants, 0, 4), weights)
        words = [
            f.load(vec(self.channels, word), constants, 4 * self.isa.lanes * (1 + i), 4)
            for i, word in enumerate(REQUANTIZERS[epilogue.rounding].factor_words)
        ]
        factor: Requantize = REQUANTIZERS[epilogue.rounding].emit(f, words, epilogue.may_overflow)
        emitter = Int8EpilogueEmitter(f, epilogue, f.gep(f.arg("weights"), self.params))
        pixels = [min(p, self.pixels - 1) for p in range(4)]  # a store takes four vectors
        added = [self._residual(second, p) for p in pixels] if epilogue.sum else None
        packed = emitter.store([sums[p] for p in pixels], [factor] * 4, added)
        for p in range(self.pixels):
            row = f.shuffle(packed, packed, range(p * self.channels, p * self.channels + used))
            f.store_first(row, used, out, p * self.steps[0])
        return [f.gep(constants, 4 * self.channels), after, f.gep(out, used), f.gep(second, used)]

    def _residual(self, second: Reg, pixel: int) -> Reg:
        f = self.f
        return f.cast(
            "zext", f.load(vec(self.channels, "i8"), second, pixel * self.steps[1]), vec(self.channels, "i32")
        )

    def _multiply(self, bias: Reg, weights: Reg) -> tuple[Reg, list[Reg]]:
        """The depth loop: the end of the weights, and a vector of accumulators for each pixel."""
        f, window, pixels, channels = self.f, self.window, self.pixels, self.channels
        dots = Int8Dot(f, self.isa)
        first = [f.emit("i32", f"extractelement {bias.type} {bias}, i32 {c}") for c in range(channels)]
        offsets = [
            c // self.stream * 4 * self.stream * window.elements + 4 * (c % self.stream) for c in range(channels)
        ]
        data_offsets, advance, loops, times = _unroll(window)

        def steps(_: Reg, carried: list[Reg]) -> list[Reg]:
            data, at_weights, *sums = carried
            for at, data_offset in enumerate(data_offsets):
                x = [dots.data(f.load("i32", data, p * window.step + data_offset, 1)) for p in range(pixels)]
                for c, offset in enumerate(offsets):
                    w = dots.weights(f.load("i32", at_weights, 4 * self.stream * at + offset, 4))
                    for p in range(pixels):
                        sums[p * channels + c] = dots.add(sums[p * channels + c], x[p], w)
            ends = f.gep(data, advance), f.gep(at_weights, 4 * self.stream * len(data_offsets))
            return [*(opaque(f, end) if pixels > 1 else end for end in ends), *sums]

        start = [f.arg("data"), weights, *first * pixels]
        outer = Window(loops, window.depth, window.step)
        _, after, *sums = emit_window_loops(f, outer, start, steps, times)
        rows = [sums[p * channels : (p + 1) * channels] for p in range(pixels)]
        return after, [join_lanes(f, row, bias.type) for row in rows]


_UNROLLED = 6  # steps of the innermost loop, at most


def _unroll(window: Window) -> tuple[list[int], int, tuple[tuple[int, int], ...], int]:
    """The innermost loop: offsets of the data of its steps, in bytes, and from one iteration to the next; the loops
    around it, and how often it runs. A short depth is unrolled together with the loop around it."""
    count, stride = window.loops[-1] if window.loops else (1, 0)
    rows = next((n for n in range(_UNROLLED // window.depth, 1, -1) if count % n == 0), 0)
    if rows:
        data_offsets = [row * stride + 4 * at for row in range(rows) for at in range(window.depth)]
        return data_offsets, rows * stride, window.loops[:-1], count // rows
    unrolled = next(n for n in (4, 3, 2, 1) if window.depth % n == 0)
    return [4 * at for at in range(unrolled)], 4 * unrolled, window.loops, window.depth // unrolled
