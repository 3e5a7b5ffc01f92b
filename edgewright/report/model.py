"""The contents of a report as plain data. ``collect`` reads them from a file, ``api`` adds what compiling knows, and
``page`` renders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CPU = "cpu"  # the placement of an operator that no delegate runs


@dataclass(frozen=True)
class Histogram:
    """How values are distributed between ``low`` and ``high``, in bins of equal width. ``values``: how many there are;
    ``sampled``: how many of them were counted."""

    title: str
    low: float
    high: float
    counts: tuple[int, ...]
    values: int
    sampled: int


@dataclass
class Node:
    """An operator of a graph. ``inputs``: indices of the nodes that it reads. ``module``: the path of its module, or of
    the delegate it is in. ``macs``: multiply-accumulates. ``bytes``: of its results; ``weights``: of its constants.
    ``ms``: milliseconds on this machine. ``error``: SQNR in decibels of the error that it introduces."""

    name: str
    operator: str
    module: str = ""
    placement: str = CPU
    inputs: Sequence[int] = ()
    outputs: Sequence[str] = ()
    quantization: Sequence[str] = ()
    source: str = ""
    rules: Sequence[str] = ()
    macs: int = 0
    bytes: int = 0
    weights: int = 0
    ms: float | None = None
    error: float | None = None
    cycles: int | None = None
    histograms: list[Histogram] = field(default_factory=list)


@dataclass
class GraphView:
    """A graph of the report: the model that was compiled, or the contents of the file. ``about``: what its operators
    are. ``total``: all operators; a page has a limit."""

    title: str
    about: str
    nodes: list[Node] = field(default_factory=list)
    total: int = 0

    @property
    def omitted(self) -> int:
        return self.total - len(self.nodes)


@dataclass(frozen=True)
class Fact:
    """A line of the overview. ``basis``: who says so, or what it was measured on. ``status``: ``good``, ``warn``,
    ``bad`` or nothing."""

    label: str
    value: str
    basis: str = ""
    status: str = ""


@dataclass(frozen=True)
class LayerError:
    """Quantization error of a layer, SQNR in decibels: what the layer ``introduced`` alone, its ``effect`` on the
    outputs, and its result fake-quantized and on the device. ``share``: its part of all layers' effects."""

    name: str
    module: str
    operator: str
    introduced: float
    effect: float
    share: float
    fake: float
    device: float | None = None


@dataclass(frozen=True)
class Step:
    """A step of a compiled graph, or an instruction, with its median time on this machine. ``bytes``: of operands and
    results; both are 0 where they are not known. ``layer``: the modules of the model that it computes."""

    instruction: str
    name: str
    ms: float
    share: float
    macs: int = 0
    bytes: int = 0
    layer: str = ""


@dataclass(frozen=True)
class DeviceLayer:
    """A layer of an estimate. ``utilization``: of the multipliers; None if it is not known. ``seconds``: of the cycles
    at the device's clock, if that is known."""

    name: str
    operator: str
    cycles: int
    macs: int
    utilization: float | None
    seconds: float | None = None


@dataclass(frozen=True)
class Pass:
    """An operation of an NPU's command stream. ``traffic``: bytes that it reads and writes, by memory; every operand is
    counted once. ``layer``: the module of the model that it computes."""

    text: str
    traffic: Mapping[str, int]
    layer: str = ""


@dataclass(frozen=True)
class Passes:
    """The command stream of a delegate. ``basis``: how the traffic is counted."""

    title: str
    basis: str
    passes: Sequence[Pass]


@dataclass(frozen=True)
class Roofs:
    """What this machine reached when the report was made: multiply-accumulates per second by element type, bytes per
    second by memory."""

    macs: Mapping[str, float]
    bytes: Mapping[str, float]
    basis: str


@dataclass
class Layers:
    """Where error and time arise. ``simulated``: how this machine ran the program, if its device is another one."""

    errors: list[LayerError] = field(default_factory=list)
    error_basis: str = ""
    steps: list[Step] = field(default_factory=list)
    step_basis: str = ""
    simulated: str = ""
    device: list[DeviceLayer] = field(default_factory=list)
    device_basis: str = ""
    streams: list[Passes] = field(default_factory=list)
    roofs: Roofs | None = None


@dataclass(frozen=True)
class Block:
    """A tensor in an arena, from the instruction that writes it first to the last that reads it."""

    name: str
    start: int
    end: int
    offset: int
    bytes: int


@dataclass
class Arena:
    """Planned memory of a method over its instructions. ``index``: the number of the arena in the file."""

    method: str
    index: int
    bytes: int
    blocks: list[Block] = field(default_factory=list)
    instructions: int = 0
    peak: int = 0  # bytes that are live at once, at most
    peak_at: int = 0
    total: int = 0  # blocks, including those beyond the limit of a page
    live: list[tuple[int, int]] = field(default_factory=list)  # from an instruction on, bytes that are live


@dataclass(frozen=True)
class Weights:
    """Constants by their owner: the module, operator or tensor that has them."""

    owner: str
    tensors: int
    bytes: int


@dataclass
class Memory:
    """Bytes in the file and at run time. ``flash`` and ``ram``: the user's limits. ``npu``: bytes by memory of the NPU,
    as a vendor's compiler reports them."""

    file_bytes: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    arenas: list[Arena] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)
    planned: int = 0
    scratch: int = 0  # bytes that delegates need beside it: those of the largest, as they run one after the other
    npu: Mapping[str, int] = field(default_factory=dict)
    npu_basis: str = ""
    flash: int | None = None
    ram: int | None = None

    @property
    def ram_used(self) -> int:
        return self.planned + self.scratch


@dataclass(frozen=True)
class Span:
    """A rectangle of the flame chart: start and length in microseconds, and its depth."""

    name: str
    start: float
    length: float
    depth: int


@dataclass
class Timeline:
    """A profile. ``spans`` are those of one run, the median one; ``total``: how many it has."""

    title: str
    basis: str
    spans: list[Span] = field(default_factory=list)
    total: int = 0


@dataclass
class Measures:
    """Figures that files are compared by; None where they are not known. ``milliseconds``: of the device;
    ``here_ms``: on this machine, which for other devices is the time of a simulation."""

    file_bytes: int = 0
    planned: int = 0
    milliseconds: float | None = None
    time_basis: str = ""
    here_ms: float | None = None
    sqnr: float | None = None
    coverage: float | None = None


@dataclass(frozen=True)
class TestCase:
    """A test case of a bundle. ``outputs``: how many were compared; ``error``: the largest difference."""

    __test__ = False  # not a test of ours

    method: str
    index: int
    outputs: int
    error: float
    passed: bool


@dataclass
class FileReport:
    """Everything about one program. ``estimates``: of vendors' compilers, a line each. ``properties``: by name, for
    comparison with other files."""

    name: str
    target: str = ""
    precision: str = ""
    facts: list[Fact] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    estimates: list[str] = field(default_factory=list)
    tests: list[TestCase] = field(default_factory=list)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    signature: list[tuple[str, str, str]] = field(default_factory=list)  # method, input or output, type
    graphs: list[GraphView] = field(default_factory=list)
    layers: Layers = field(default_factory=Layers)
    memory: Memory = field(default_factory=Memory)
    timelines: list[Timeline] = field(default_factory=list)
    measures: Measures = field(default_factory=Measures)
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SweepRow:
    """A row of a sweep. ``milliseconds``: of ``time_basis``. ``score``: the user's metric, or the SQNR in decibels.
    ``best``: no comparable row is smaller, faster and better. ``status``: ``done``, ``failed``, ``stopped`` or
    ``missing``; ``note``: the error, or why an attempt was repeated."""

    model: str
    target: str
    precision: str
    options: str = ""
    status: str = "done"
    note: str = ""
    file_bytes: int | None = None
    planned: int | None = None
    milliseconds: float | None = None
    time_basis: str = ""
    score: float | None = None
    coverage: float | None = None
    best: bool = False

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.model, self.target, self.precision, self.options)))


@dataclass
class Sweep:
    """The rows of a sweep. ``score``: what its scores are; ``comparable``: they compare between models. ``lower``: a
    smaller one is better. ``about``: what scores were measured on."""

    rows: list[SweepRow]
    score: str = "SQNR, dB"
    comparable: bool = False
    lower: bool = False
    about: str = ""


@dataclass
class Report:
    """One page: one file, or several to compare; or a sweep, with some of its files. ``failures``: targets that could
    not be compiled, with the error."""

    title: str
    files: list[FileReport] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    sweep: Sweep | None = None
