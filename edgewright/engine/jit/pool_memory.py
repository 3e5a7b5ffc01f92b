"""The memory all threads of the pool share, and how LLVM text addresses it."""

from __future__ import annotations

ROW = 64  # bytes of a step in the table: kernel, args, units, grain, share, longer shares, target, unused
CHUNK_BITS = 16
MAX_CHUNKS = (1 << CHUNK_BITS) - 1

# Byte offsets in the pool's memory. What is written often has a pair of cache lines of its own.
EPOCH = 0
DONE = 128  # chunks completed since the process started
PARKED = 256  # i32: workers that sleep, or are about to
JOB = 384  # table, count, first serial, done at the start, threads, scratch, bytes of scratch per thread
STOP = 512
SPIN = 520  # looks at the epoch before a worker parks
PATIENCE = 528  # looks at a barrier before each further one yields the core
SERIAL = 536  # of the next call's first step
CORE = 544  # the caller's when affinity was last set
SYSCALL, GETCPU, YIELD = 640, 648, 656  # functions of the C library; no syscall: sleeping is left to Python
FUTEX, AFFINITY = 664, 672  # numbers of the system calls
MASK_BYTES, ALLOWED, MASK = 680, 688, 696  # cores this process may use; room for those a worker may
WORKERS, TIDS = 704, 712  # how many, and their thread ids (i64)
THREADS = 1024  # per thread: claim word, busy, last epoch served
CLAIM, BUSY, SEEN = 0, 128, 136
THREAD = 256


def context_size(threads: int) -> int:
    return THREADS + THREAD * threads


def field_address(name: str, offset: int, base: str = "%ctx") -> str:
    """The address at ``offset``."""
    return f"  {name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def load_field(name: str, kind: str, offset: int, base: str = "%ctx") -> str:
    """Load to ``name``; its address stays in ``name.at``."""
    return field_address(f"{name}.at", offset, base) + f"  {name} = load {kind}, ptr {name}.at, align 8\n"


def thread_field_address(name: str, index: str, offset: int) -> str:
    """The address of what belongs to the thread ``index``."""
    return (
        f"  {name}.far = mul i64 {index}, {THREAD}\n"
        f"  {name}.off = add i64 {name}.far, {THREADS + offset}\n"
        f"  {name} = getelementptr i8, ptr %ctx, i64 {name}.off\n"
    )


def load_i64s(base: str = "%ctx", **offsets: int) -> str:
    """Load a number to each name."""
    return "".join(load_field(f"%{name}", "i64", offset, base) for name, offset in offsets.items())


def load_pointers(base: str = "%ctx", **offsets: int) -> str:
    """Load a pointer to each name."""
    return "".join(load_field(f"%{name}", "ptr", offset, base) for name, offset in offsets.items())
