"""Layout of the memory that all pool threads share, and helpers that emit LLVM IR to access it."""

from __future__ import annotations

ROW = 64  # bytes of a step in the table: kernel, args, units, grain, share, longer shares, target, unused
CHUNK_BITS = 16
MAX_CHUNKS = (1 << CHUNK_BITS) - 1

# Byte offsets. Fields that are written often have a pair of cache lines of their own (adjacent-line prefetch).
EPOCH = 0
DONE = 128  # chunks completed since the process started
PARKED = 256  # i32: workers that sleep or are about to
JOB = 384  # table, count, first serial, done at the start, threads, scratch, bytes of scratch per thread
STOP = 512
SPIN = 520  # polls of the epoch before a worker parks
PATIENCE = 528  # polls of a barrier before further polls yield the core
SERIAL = 536  # serial number of the next call's first step
CORE = 544  # the caller's core when affinity was last set
SYSCALL, GETCPU, YIELD = 640, 648, 656  # C library functions; without syscall, Python does the sleeping
FUTEX, AFFINITY = 664, 672  # system call numbers
MASK_BYTES, ALLOWED, MASK = 680, 688, 696  # affinity masks: of this process, and scratch for a worker's
WORKERS, TIDS = 704, 712  # their count and thread ids (i64)
THREADS = 1024  # per thread: claim word, busy, last epoch served
CLAIM, BUSY, SEEN = 0, 128, 136
THREAD = 256


def context_size(threads: int) -> int:
    return THREADS + THREAD * threads


def field_address(name: str, offset: int, base: str = "%ctx") -> str:
    """Emit the address of a field."""
    return f"  {name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def load_field(name: str, kind: str, offset: int, base: str = "%ctx") -> str:
    """Emit a load of a field to ``name``; its address is ``name.at``."""
    return field_address(f"{name}.at", offset, base) + f"  {name} = load {kind}, ptr {name}.at, align 8\n"


def thread_field_address(name: str, index: str, offset: int) -> str:
    """Emit the address of a field of thread ``index``."""
    return (
        f"  {name}.far = mul i64 {index}, {THREAD}\n"
        f"  {name}.off = add i64 {name}.far, {THREADS + offset}\n"
        f"  {name} = getelementptr i8, ptr %ctx, i64 {name}.off\n"
    )


def load_i64s(base: str = "%ctx", **offsets: int) -> str:
    """Emit an i64 load for each name."""
    return "".join(load_field(f"%{name}", "i64", offset, base) for name, offset in offsets.items())


def load_pointers(base: str = "%ctx", **offsets: int) -> str:
    """Emit a pointer load for each name."""
    return "".join(load_field(f"%{name}", "ptr", offset, base) for name, offset in offsets.items())
