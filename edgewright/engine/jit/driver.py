"""CompiledGraph: a plan bound to memory and machine code; one native call per inference and thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.engine.graph.memory import make_resident
from edgewright.engine.jit import driver_ir
from edgewright.engine.jit.build import build_kernels
from edgewright.engine.jit.elf import CodegenError, CodeImage, Library, link
from edgewright.engine.jit.row_tables import RowTables
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.jit.threads import ThreadPolicy, address_of, aligned_buffer, driver, retire, thread_pool
from edgewright.engine.plan import ALIGN, SLACK, Address, KernelArg, Plan, PythonCall, Step, TensorSpec, TensorView
from edgewright.errors import InputError
from edgewright.forks import renew_in_child
from edgewright.ir.graph import Array

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile, StepTime

# ------------------------------------------------------------------------------------------------------ validate arrays

# Validation of the caller's arrays, which machine code reads and writes without bounds checks.


def validate_inputs(arrays: Sequence[Array], tensors: Sequence[TensorSpec]) -> list[Array]:
    """Check the caller's inputs; copy those that are not contiguous and aligned."""
    if len(arrays) != len(tensors):
        raise InputError("inputs", f"must be {len(tensors)} arrays", value=len(arrays))
    result = []
    for at, tensor in enumerate(tensors):
        array = arrays[at]
        if not fits(array, tensor):
            raise _mismatch_error(f"input {at} ({tensor.name})", array, tensor)
        flags = array.flags
        result.append(array if flags.c_contiguous and flags.aligned else np.array(array, order="C"))
    return result


def validate_outputs(arrays: Sequence[Array], tensors: Sequence[TensorSpec]) -> None:
    if len(arrays) != len(tensors):
        raise InputError("outputs", f"must be {len(tensors)} arrays", value=len(arrays))
    for at, tensor in enumerate(tensors):
        array = arrays[at]
        if not fits(array, tensor):
            raise _mismatch_error(f"output {at} ({tensor.name})", array, tensor)
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            raise InputError(f"output {at} ({tensor.name})", "must be contiguous, aligned and writable")
        if any(np.may_share_memory(array, other) for other in arrays[:at]):
            raise InputError(f"output {at} ({tensor.name})", "must not share memory with another output")


def fits(array: Any, tensor: TensorSpec) -> bool:
    """Whether an array has the type and shape of an input or output."""
    return isinstance(array, np.ndarray) and array.dtype == tensor.dtype and array.shape == tensor.shape


def _mismatch_error(name: str, array: Any, tensor: TensorSpec) -> InputError:
    if not isinstance(array, np.ndarray):
        return InputError(name, "must be a numpy array", value=type(array).__name__)
    if array.dtype != tensor.dtype:
        return InputError(name, f"must be of type {tensor.dtype}", value=str(array.dtype))
    return InputError(name, f"must have shape {list(tensor.shape)}", value=list(array.shape))


# --------------------------------------------------------------------------------------------------------------- driver

# CompiledGraph: a plan bound to memory and machine code; one native call per inference and thread.
#
# Machine code has no bounds checks, so everything it relies on is checked here: addresses when the graph is
# constructed, the caller's arrays before every call.

# Waking a sleeping thread takes about 50 us; smaller segments run on the caller's thread alone.
_MACS_PER_US, _BYTES_PER_US, _WORTH_US = 50_000, 10_000, 40
_LONG_US = 40_000  # several time slices of a scheduler, even where int8 products take a fifth of the estimate
_I64 = np.dtype(np.int64)


@dataclass(frozen=True)
class _Segment:
    """A run of consecutive native steps: their step table, and the thread policy if threading may pay off."""

    table: Array
    address: int
    steps: tuple[Step, ...]
    policy: ThreadPolicy | None


class _StepTimer:
    """Collects the time stamps of one run, in ticks of the clock that machine code reads.

    Both clocks are read before and after the run to convert ticks to nanoseconds.
    """

    def __init__(self) -> None:
        self._stamps: list[tuple[Sequence[Step], Array]] = []
        self._first_tick, self._start = int(driver().now()), time.perf_counter_ns()

    def add(self, steps: Sequence[Step], stamps: Array) -> None:
        """Add the ticks of the start and end of each step."""
        self._stamps.append((steps, stamps))

    def finish(self, profile: Profile) -> None:
        from edgewright.engine.profile import StepTime  # only if profiling

        last_tick, end = int(driver().now()), time.perf_counter_ns()
        rate = (end - self._start) / max(last_tick - self._first_tick, 1)
        spans: list[StepTime] = []
        for steps, stamps in self._stamps:
            times = self._start + ((stamps - self._first_tick) * rate).astype(np.int64)
            spans += [
                StepTime(0, at, _profile_name(s), int(a), int(b), macs=s.macs, bytes=s.bytes, layer=s.layer)
                for at, (s, (a, b)) in enumerate(zip(steps, times, strict=True), len(spans))
            ]
        profile.add_graph_run(self._start, end, spans)


def _profile_name(step: Step) -> str:
    name = step.label or step.kernel
    return name if step.python is None else f"{name} (in numpy)"


class CompiledGraph:
    """Runs a plan. Calls on one graph are serialized by a lock; different graphs run concurrently."""

    def __init__(self, plan: Plan, threads: int | None = None) -> None:
        self.plan = plan = replace(plan, weights=make_resident(plan.weights))
        self.threads = thread_count(threads)
        self.image = plan.image or _compile_image(plan)
        self._library = Library(self.image)
        native = (step.kernel for step in plan.steps if step.python is None)
        self._kernels = {name: self._library.address(name) for name in dict.fromkeys(native)}
        self._buffers = {"arena": aligned_buffer(plan.arena_size + SLACK), "weights": plan.weights}
        self._stride = -(-plan.scratch_size // ALIGN) * ALIGN + 2 * ALIGN  # no false sharing between threads
        self._scratch = aligned_buffer(self._stride * self.threads)
        self._scratch_address = address_of(self._scratch)
        self._patches: list[tuple[int, int, int]] = []  # argument slot, index among inputs and outputs, byte offset
        self._patched_by: object = None  # whose arrays the arguments point into
        self._args = self._make_args()
        self._segments = self._make_segments()
        self._row_tables = RowTables.of(plan)
        self._check_result = self._buffers["arena"][plan.arena_size - ALIGN :][:16].view(_I64) if plan.checks else None
        self._lock = threading.Lock()
        renew_in_child(self)
        weakref.finalize(self, retire, [part.table for part in self._segments if isinstance(part, _Segment)])

    def _renew(self) -> None:
        """After a fork no call is running in the child, and a call leaves no state that the next one reads."""
        self._lock = threading.Lock()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of memory by purpose."""
        return {
            "arena": self.plan.arena_size,
            "weights": self.plan.weights.nbytes,
            "scratch": self._scratch.nbytes,
        }

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array] | None = None, profile: Profile | None = None
    ) -> list[Array]:
        """Run the graph. Results are written to ``outputs`` if given, else to new arrays."""
        arrays_in = validate_inputs(inputs, self.plan.inputs)
        arrays_out = [np.empty(t.shape, t.dtype) for t in self.plan.outputs] if outputs is None else list(outputs)
        if outputs is not None:
            validate_outputs(arrays_out, self.plan.outputs)
            arrays_in = self._copy_overlapping(arrays_in, arrays_out)
        with self._lock:
            self._copy_updates(arrays_in, arrays_out)
            bases = {"input": arrays_in, "output": arrays_out}
            self._patch([address_of(array) for array in (*arrays_in, *arrays_out)])
            timer = None if profile is None else _StepTimer()
            self._reset_checks()
            for part in self._segments:
                if isinstance(part, _Segment):
                    self._run_segment(part, timer)
                else:
                    self._run_python(part, bases, timer)
            if profile is not None and timer is not None:
                timer.finish(profile)
            self._finish_call()
        return arrays_out

    @cached_property
    def native(self) -> bool:
        """Whether every step is machine code."""
        return all(isinstance(part, _Segment) for part in self._segments)

    def run_ready(self, arrays_in: Sequence[Array], arrays_out: Sequence[Array]) -> None:
        """Like ``run`` without checks: the graph must be native, and the arrays validated and disjoint."""
        with self._lock:
            self._patch([address_of(array) for array in (*arrays_in, *arrays_out)])
            self._run_native()

    def run_bound(self, owner: object, addresses: Sequence[int], changed: Sequence[int]) -> None:
        """Like ``run_ready``, of arrays at ``addresses``: only ``changed`` are other ones than in the owner's last
        call."""
        with self._lock:
            if self._patched_by is not owner:
                self._patch(addresses)
                self._patched_by = owner
            else:
                for i in changed:
                    for at, offset in self._patches_of[i]:
                        self._args[at] = addresses[i] + offset
            self._run_native()

    def _patch(self, addresses: Sequence[int]) -> None:
        """Write the addresses of all arrays to the arguments that point into them."""
        args, self._patched_by = self._args, None
        for at, argument, offset in self._patches:
            args[at] = addresses[argument] + offset

    @cached_property
    def _patches_of(self) -> list[list[tuple[int, int]]]:
        """Argument slots and byte offsets by the index of the array."""
        patches: list[list[tuple[int, int]]] = [[] for _ in (*self.plan.inputs, *self.plan.outputs)]
        for at, argument, offset in self._patches:
            patches[argument].append((at, offset))
        return patches

    def _run_native(self) -> None:
        self._reset_checks()
        for part in self._segments:
            assert isinstance(part, _Segment)
            self._run_segment(part, None)
        self._finish_call()

    def _finish_call(self) -> None:
        if self._row_tables is not None:
            self._row_tables.release()
        self._raise_failed_check()

    def _reset_checks(self) -> None:
        if self._check_result is not None:
            self._check_result[0] = 0

    def _raise_failed_check(self) -> None:
        """Raise the error that a kernel's bounds check recorded, if any."""
        if self._check_result is not None and self._check_result[0]:
            check = self.plan.checks[int(self._check_result[0]) - 1]
            raise check.outside.error(check.size, int(self._check_result[1]))

    def _copy_overlapping(self, arrays_in: Sequence[Array], arrays_out: Sequence[Array]) -> list[Array]:
        """Copy inputs that overlap outputs, except those updated in place."""
        in_place = {source: output for output, source in self.plan.updates}
        return [
            a.copy() if any(np.may_share_memory(a, o) for n, o in enumerate(arrays_out) if n != in_place.get(i)) else a
            for i, a in enumerate(arrays_in)
        ]

    def _copy_updates(self, arrays_in: Sequence[Array], arrays_out: Sequence[Array]) -> None:
        """Copy the inputs of in-place updates to their outputs, unless they are the same arrays."""
        for output, source in self.plan.updates:
            if address_of(arrays_out[output]) != address_of(arrays_in[source]):
                np.copyto(arrays_out[output], arrays_in[source])

    def _run_segment(self, part: _Segment, timer: _StepTimer | None) -> None:
        if timer is not None:
            stamps = np.zeros((len(part.steps), 2), np.int64)
            if part.policy is None or not self._run_shared(part, address_of(stamps)):
                driver().run_alone_timed(part.address, len(part.steps), self._scratch_address, address_of(stamps))
            timer.add(part.steps, stamps)
            return
        policy = part.policy
        if policy is None:
            driver().run_alone(part.address, len(part.steps), self._scratch_address)
            return
        start = time.perf_counter_ns()
        shared = policy.decide() and self._run_shared(part)
        if not shared:
            driver().run_alone(part.address, len(part.steps), self._scratch_address)
        policy.record(shared, time.perf_counter_ns() - start)

    def _run_shared(self, part: _Segment, stamps: int = 0) -> bool:
        """Run a segment on the thread pool; returns False without running it if another graph uses the pool."""
        workers = thread_pool()
        if not workers.lock.acquire(blocking=False):
            return False
        try:
            workers.ensure(self.threads)
            workers.run(part.address, len(part.steps), self.threads, self._scratch_address, self._stride, stamps)
        finally:
            workers.lock.release()
        return True

    def _run_python(self, step: Step, bases: dict[str, list[Array]], timer: _StepTimer | None) -> None:
        call = step.python
        assert isinstance(call, PythonCall)
        start = driver().now() if timer is not None else 0
        call.run([self._view(v, bases) for v in call.reads], [self._view(v, bases) for v in call.writes])
        if timer is not None:
            timer.add([step], np.array([[start, driver().now()]], np.int64))

    def _view(self, view: TensorView, bases: dict[str, list[Array]]) -> Array:
        address = view.address
        internal = self._buffers.get(address.buffer)
        buffer = bases[address.buffer][address.index].reshape(-1).view(np.uint8) if internal is None else internal
        # numpy raises if the view exceeds the buffer.
        array: Array = np.ndarray(view.shape, view.dtype, buffer, address.offset, view.strides)
        if address.buffer in ("input", "weights"):
            array.flags.writeable = False
        return array

    def _make_args(self) -> Array:
        steps = [step for step in self.plan.steps if step.python is None]
        args: Array = aligned_buffer(8 * sum(len(step.args) for step in steps)).view(_I64)
        bases = {name: (address_of(buffer), self._size(name)) for name, buffer in self._buffers.items()}
        numbers: list[int] = []
        for step in steps:
            for slot in step.args:
                if type(slot) is Address and slot.buffer in bases:
                    base, size = bases[slot.buffer]
                    self._check_offset(step, slot, size)
                    numbers.append(base + slot.offset)
                else:
                    numbers.append(self._slot(step, slot, len(numbers)))
        args[:] = numbers
        return args

    def _size(self, buffer: str) -> int:
        """Bytes that a plan may address in one of the graph's own buffers."""
        return self.plan.arena_size if buffer == "arena" else self.plan.weights.nbytes

    def _check_offset(self, step: Step, slot: Address, size: int) -> None:
        if not 0 <= slot.offset <= size:
            rule = f"must lie in the {slot.buffer} of {size} bytes"
            raise CodegenError(f"{step.label or step.kernel}: address", rule, value=slot.offset)

    def _slot(self, step: Step, slot: KernelArg, at: int) -> int:
        """The 8 bytes of an argument slot outside of the graph's own buffers; slots that point into the caller's arrays
        are patched by every call."""
        if isinstance(slot, float):
            return int(np.float32(slot).view(np.uint32))
        if not isinstance(slot, Address):
            return slot
        if slot.buffer == "shared":
            array = self.plan.shared[slot.index]
            if not 0 <= slot.offset <= array.nbytes:
                rule = f"must lie in the shared weights' {array.nbytes} bytes"
                raise CodegenError(f"{step.label or step.kernel}: address", rule, value=slot.offset)
            return address_of(array) + slot.offset
        tensors = self.plan.inputs if slot.buffer == "input" else self.plan.outputs
        first = 0 if slot.buffer == "input" else len(self.plan.inputs)
        self._patches.append((at, first + slot.index, slot.offset))
        self._check_offset(step, slot, tensors[slot.index].nbytes)
        return 0

    def _make_segments(self) -> list[_Segment | Step]:
        parts: list[_Segment | Step] = []
        at = 0
        for python, group in groupby(self.plan.steps, key=lambda step: step.python is not None):
            steps = tuple(group)
            if python:
                parts += steps
                continue
            table = self._make_table(steps, at)
            policy = None
            if self.threads > 1 and any(step.units > step.grain for step in steps):
                estimate = _estimated_us(steps)
                if estimate >= _WORTH_US:
                    policy = ThreadPolicy(self.threads, long=estimate >= _LONG_US)
            parts.append(_Segment(table, address_of(table), steps, policy))
            at += sum(len(step.args) for step in steps)
        return parts

    def _make_table(self, steps: tuple[Step, ...], at: int) -> Array:
        """Build the step table; ``pool_memory.ROW`` documents a row. Without a barrier the target is 0: do not wait."""
        table: Array = aligned_buffer(driver_ir.ROW * len(steps)).view(_I64).reshape(-1, driver_ir.ROW // 8)
        done = 0
        for k, step in enumerate(steps):
            if step.units < 1 or step.grain < 1:
                raise CodegenError(f"{step.label or step.kernel}: units and grain", "must be at least 1")
            grain = max(step.grain, -(-step.units // driver_ir.MAX_CHUNKS))
            chunks = -(-step.units // grain)
            done += chunks
            share, longer = divmod(chunks, self.threads)
            last = k + 1 == len(steps) or steps[k + 1].barrier
            args = address_of(self._args) + 8 * at
            table[k] = (self._kernels[step.kernel], args, step.units, grain, share, longer, done if last else 0, 0)
            at += len(step.args)
        return table


def _compile_image(plan: Plan) -> CodeImage:
    names = sorted({step.kernel for step in plan.steps if step.python is None})
    kernels = {name: plan.kernels[name] for name in names}
    return link(build_kernels(kernels, plan.cpu, plan.features, limit=plan.code_limit))


def _estimated_us(steps: Sequence[Step]) -> float:
    """Microseconds on one thread, roughly."""
    return sum(step.macs for step in steps) / _MACS_PER_US + sum(step.bytes for step in steps) / _BYTES_PER_US
