"""The driver and the worker loop of the thread pool, as LLVM IR."""

from __future__ import annotations

from functools import cache

# ---------------------------------------------------------------------------------------------------------- pool memory

# Layout of the memory that all pool threads share, and helpers that emit LLVM IR to access it.

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


# ------------------------------------------------------------------------------------------------------------ worker ir

# LLVM IR of the worker loop: poll for a call, join it, park on a futex when idle; and of waking workers.
#
# ``@attend`` joins a call safely although the caller may close it at any time: the worker sets its busy flag, reads the
# epoch, copies the job description, and reads the epoch again. If it changed, the copy may be torn and is discarded.
# This is a seqlock read side plus a hazard flag (compare Michael, "Hazard Pointers", 2004): memory the job refers to is
# freed only while the epoch is odd and no worker is busy. ``@serve`` avoids lost wake-ups with the usual futex pattern:
# count itself as parked, re-check the epoch, then wait on that epoch value.

_CALL = load_i64s(count=JOB + 8, serial0=JOB + 16, done0=JOB + 24, threads=JOB + 32, stride=JOB + 48)
_WORKER_ARGS = (
    "ptr %ctx, i64 %me, ptr %table, i64 %count, i64 %first, i64 %serial0, i64 %done0, i64 %threads, ptr %scratch"
)
_ATTEND = f"""
define internal void @attend(ptr %ctx, i64 %me) nounwind noinline {{
entry:
{thread_field_address("%busy", "%me", BUSY)}{thread_field_address("%seen", "%me", SEEN)}{field_address("%epoch", EPOCH)}
  store atomic i64 1, ptr %busy seq_cst, align 8
  %e = load atomic i64, ptr %epoch seq_cst, align 8
  %odd = trunc i64 %e to i1
  br i1 %odd, label %leave, label %read
read:
{load_pointers(table=JOB, scratch0=JOB + 40)}{_CALL}  fence acquire
  %e2 = load atomic i64, ptr %epoch seq_cst, align 8
  %same = icmp eq i64 %e, %e2
  br i1 %same, label %wanted, label %leave
wanted:
  store i64 %e, ptr %seen, align 8
  %mine = icmp ult i64 %me, %threads
  br i1 %mine, label %find, label %leave
find:
{field_address("%caller", THREADS + CLAIM)}  %w = load atomic i64, ptr %caller acquire, align 8
  %tag = lshr i64 %w, {CHUNK_BITS}
  %first = call i64 @llvm.usub.sat.i64(i64 %tag, i64 %serial0)
  %late = icmp uge i64 %first, %count
  br i1 %late, label %leave, label %join
join:
  %far = mul i64 %me, %stride
  %scratch = getelementptr i8, ptr %scratch0, i64 %far
  call void @work({_WORKER_ARGS})
  br label %leave
leave:
  store atomic i64 0, ptr %busy seq_cst, align 8
  ret void
}}
"""

_SERVE_FIELDS = field_address("%epoch", EPOCH) + field_address("%stop.at", STOP) + field_address("%parked", PARKED)
_SERVE = f"""
define void @serve(ptr %ctx, i64 %me) nounwind {{
entry:
{thread_field_address("%seen.at", "%me", SEEN)}{_SERVE_FIELDS}
{load_i64s(spin=SPIN, futex=FUTEX)}{load_pointers(syscall=SYSCALL)}  br label %fresh
fresh:
  %seen = load i64, ptr %seen.at, align 8
  br label %look
look:
  %n = phi i64 [0, %fresh], [%n1, %pause], [0, %unpark]
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %ending = icmp ne i64 %stop, 0
  br i1 %ending, label %end, label %news
news:
  %e = load atomic i64, ptr %epoch acquire, align 8
  %odd = trunc i64 %e to i1
  %old = icmp eq i64 %e, %seen
  %idle = or i1 %odd, %old
  br i1 %idle, label %rest, label %call
call:
  call void @attend(ptr %ctx, i64 %me)
  br label %fresh
rest:
  %enough = icmp uge i64 %n, %spin
  br i1 %enough, label %sleep, label %pause
pause:
  call void @relax()
  %n1 = add i64 %n, 1
  br label %look
sleep:
  %python = icmp eq ptr %syscall, null
  br i1 %python, label %end, label %park
park:
  %p = atomicrmw add ptr %parked, i32 1 seq_cst, align 4
  %last = load atomic i64, ptr %epoch seq_cst, align 8
  %last.odd = trunc i64 %last to i1
  %last.old = icmp eq i64 %last, %seen
  %quiet = or i1 %last.odd, %last.old
  %stop2 = load atomic i64, ptr %stop.at seq_cst, align 8
  %going = icmp eq i64 %stop2, 0
  %may = and i1 %quiet, %going
  br i1 %may, label %futex.wait, label %unpark
futex.wait:
  %expected = and i64 %last, 4294967295
  %r = call i64 (i64, ...) %syscall(i64 %futex, ptr %epoch, i64 128, i64 %expected, ptr null)
  br label %unpark
unpark:
  %q = atomicrmw sub ptr %parked, i32 1 seq_cst, align 4
  br label %look
end:
  ret void
}}
"""

_WAKE = f"""
define internal void @wake(ptr %ctx) nounwind noinline {{
entry:
{load_pointers(syscall=SYSCALL, getcpu=GETCPU, allowed=ALLOWED, mask=MASK, tids=TIDS)}
{load_i64s(last=CORE, futex=FUTEX, affinity=AFFINITY, bytes=MASK_BYTES, workers=WORKERS)}  %core32 = call i32 %getcpu()
  %core = zext i32 %core32 to i64
  %same = icmp eq i64 %core, %last
  %bits = shl i64 %bytes, 3
  %beyond = icmp uge i64 %core, %bits
  %leave = or i1 %same, %beyond
  br i1 %leave, label %rouse, label %move
move:
  store i64 %core, ptr %last.at, align 8
  br label %copy
copy:
  %c = phi i64 [0, %move], [%c1, %copy]
  %from = getelementptr i8, ptr %allowed, i64 %c
  %to = getelementptr i8, ptr %mask, i64 %c
  %eight = load i64, ptr %from, align 8
  store i64 %eight, ptr %to, align 8
  %c1 = add i64 %c, 8
  %rest = icmp ult i64 %c1, %bytes
  br i1 %rest, label %copy, label %copied
copied:
  %byte.i = lshr i64 %core, 3
  %byte = getelementptr i8, ptr %mask, i64 %byte.i
  %b = load i8, ptr %byte
  %bit = trunc i64 %core to i8
  %bit3 = and i8 %bit, 7
  %one = shl i8 1, %bit3
  %not = xor i8 %one, -1
  %b2 = and i8 %b, %not
  store i8 %b2, ptr %byte
  br label %each
each:
  %i = phi i64 [0, %copied], [%i1, %each]
  %tid.at = getelementptr i64, ptr %tids, i64 %i
  %tid = load i64, ptr %tid.at
  %r = call i64 (i64, ...) %syscall(i64 %affinity, i64 %tid, i64 %bytes, ptr %mask)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %workers
  br i1 %more, label %each, label %rouse
rouse:
{field_address("%epoch", EPOCH)}  %woken = call i64 (i64, ...) %syscall(i64 %futex, ptr %epoch, i64 129, i64 2147483647)
  ret void
}}

define void @halt(ptr %ctx) nounwind {{
entry:
{field_address("%stop", STOP)}{field_address("%epoch", EPOCH)}{load_pointers(syscall=SYSCALL)}{load_i64s(futex=FUTEX)}
  store atomic i64 1, ptr %stop seq_cst, align 8
  %old = atomicrmw add ptr %epoch, i64 2 seq_cst, align 8
  %python = icmp eq ptr %syscall, null
  br i1 %python, label %end, label %rouse
rouse:
  %woken = call i64 (i64, ...) %syscall(i64 %futex, ptr %epoch, i64 129, i64 2147483647)
  br label %end
end:
  ret void
}}
"""


WORKER = _ATTEND + _SERVE + _WAKE

# ------------------------------------------------------------------------------------------------------------ driver ir

# The driver, as LLVM IR: executes a step table on one thread or on the thread pool.
#
# Work distribution. The units of a step are divided into chunks, and each thread owns a contiguous share of the chunks,
# the same share in every step for cache locality. A thread claims chunks of its own share one by one with a
# compare-and-swap, then steals from the other shares. A preempted thread therefore delays a step by at most one chunk,
# and a thread that wakes late joins at whatever step is running (compare work stealing: Blumofe and Leiserson, 1999).
#
# Claim words. A thread's claim word holds ``serial << 16 | next chunk``. Serials number steps over the process's
# lifetime, so claim words only grow: a word of an earlier serial means an untouched share, one of a later serial a
# finished step. Nothing is reset between steps or calls, and a thread that slept through an entire call cannot claim a
# stale chunk (no ABA problem).
#
# Epoch. ``epoch`` is even while a call is open and odd between calls. A worker sets ``busy`` before it reads the epoch,
# and reads the epoch again after copying the call's description; memory a call refers to may be freed once the epoch is
# odd and no worker is busy.


def _row() -> str:
    """Emit loads of the fields of row %k that every mode uses."""
    address = f"  %row.off = mul i64 %k, {ROW}\n  %row = getelementptr i8, ptr %table, i64 %row.off\n"
    return address + load_pointers("%row", kernel=0, args=8) + load_i64s("%row", units=16)


def _stamp(end: int) -> str:
    """Emit a store of the time of step %k: at its start (0) or its end (1)."""
    t = f"%t{end}"
    return (
        f"  {t} = call i64 @now()\n"
        f"  {t}.row = shl i64 %k, 4\n"
        f"  {t}.off = add i64 {t}.row, {8 * end}\n"
        f"  {t}.at = getelementptr i8, ptr %stamps, i64 {t}.off\n"
        f"  store i64 {t}, ptr {t}.at, align 8\n"
    )


def _suffix(timed: bool) -> tuple[str, str, str, str]:
    """A function's variant: its name's end, its further parameter, and the readings around a step."""
    return ("_timed", ", ptr %stamps", _stamp(0), _stamp(1)) if timed else ("", "", "", "")


def _single_threaded(timed: bool) -> str:
    """One thread: no chunks, no atomics."""
    name, stamps, start, end = _suffix(timed)
    return f"""
define void @run_alone{name}(ptr %table, i64 %count, ptr %scratch{stamps}) nounwind {{
entry:
  br label %step
step:
  %k = phi i64 [0, %entry], [%k1, %step]
{start}{_row()}  call void %kernel(ptr %args, i64 0, i64 %units, ptr %scratch)
{end}  %k1 = add nuw i64 %k, 1
  %more = icmp ult i64 %k1, %count
  br i1 %more, label %step, label %leave
leave:
  ret void
}}
"""


# Threads in step with each other meet at the end of a step within moments: looking into another's share at once would
# only take its cache line away. So a thread lingers first, unless there was something to take in the step before.
_LINGER = 12

_CLAIM = f"""  br label %victim
victim:
  %v = phi i64 [%me, %step], [%v1, %other]
  %tried = phi i64 [0, %step], [%tried1, %other]
  %stole = phi i64 [0, %step], [%stole1, %other]
  %full = mul i64 %v, %share
  %before = call i64 @llvm.umin.i64(i64 %v, i64 %longer)
  %begin = add i64 %full, %before
  %extra = icmp ult i64 %v, %longer
  %extra1 = zext i1 %extra to i64
  %size = add i64 %share, %extra1
  %end = add i64 %begin, %size
{thread_field_address("%word", "%v", CLAIM)}  br label %claim
claim:
  %mine = phi i64 [0, %victim], [%mine, %take], [%mine1, %run]
  %w = load atomic i64, ptr %word acquire, align 8
  %tag = lshr i64 %w, {CHUNK_BITS}
  %fresh = icmp ult i64 %tag, %serial
  %stale = icmp ugt i64 %tag, %serial
  %low = and i64 %w, {MAX_CHUNKS}
  %next = select i1 %fresh, i64 %begin, i64 %low
  %over = icmp uge i64 %next, %end
  %none = or i1 %stale, %over
  br i1 %none, label %empty, label %take
take:
  %next1 = add i64 %next, 1
  %new = or i64 %tagged, %next1
  %swap = cmpxchg ptr %word, i64 %w, i64 %new acq_rel acquire, align 8
  %won = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %won, label %run, label %claim
run:
  %from = mul i64 %next, %grain
  %most = add i64 %from, %grain
  %to = call i64 @llvm.umin.i64(i64 %most, i64 %units)
  call void %kernel(ptr %args, i64 %from, i64 %to, ptr %scratch)
  %mine1 = add i64 %mine, 1
  br label %claim
empty:
  %some = icmp ne i64 %mine, 0
  br i1 %some, label %tell, label %told
tell:
  %old = atomicrmw add ptr %done, i64 %mine acq_rel, align 8
  br label %told
told:
  %own = icmp eq i64 %tried, 0
  %taken = select i1 %own, i64 0, i64 %mine
  %stole1 = add i64 %stole, %taken
  %tried1 = add i64 %tried, 1
  %keen = icmp ne i64 %greedy, 0
  %onward = icmp eq i64 %target, 0
  %alert = or i1 %keen, %onward
  %later = icmp ne i64 %tried, 0
  %hurry = or i1 %alert, %later
  br i1 %hurry, label %next.one, label %linger
linger:
  %n = phi i64 [0, %told], [%n1, %stay]
  %ld = load atomic i64, ptr %done acquire, align 8
  %lsince = sub i64 %ld, %done0
  %lcomplete = icmp uge i64 %lsince, %target
  br i1 %lcomplete, label %advance, label %stay
stay:
  call void @relax()
  %n1 = add i64 %n, 1
  %still = icmp ult i64 %n1, {_LINGER}
  br i1 %still, label %linger, label %next.one
next.one:
  %again = icmp ult i64 %tried1, %threads
  br i1 %again, label %other, label %finish
other:
  %v0 = add i64 %v, 1
  %wrap = icmp eq i64 %v0, %threads
  %v1 = select i1 %wrap, i64 0, i64 %v0
  br label %victim
finish:
  br i1 %onward, label %advance, label %look
look:
  %looks = phi i64 [0, %finish], [%looks1, %pause], [%looks, %yield]
  %d = load atomic i64, ptr %done acquire, align 8
  %since = sub i64 %d, %done0
  %complete = icmp uge i64 %since, %target
  br i1 %complete, label %advance, label %rest
rest:
  %patient = icmp ult i64 %looks, %patience
  br i1 %patient, label %pause, label %yield
pause:
  call void @relax()
  %looks1 = add i64 %looks, 1
  br label %look
yield:
  %ignored = call i32 %yield.f()
  br label %look
advance:
"""


_PARAMETERS = (
    "ptr %ctx, i64 %me, ptr %table, i64 %count, i64 %first, i64 %serial0, i64 %done0, i64 %threads, ptr %scratch"
)


def _work(timed: bool) -> str:
    """Emit ``@work``: steps ``first`` to ``count``, shared with the other threads of the call."""
    name, stamps, start, end = _suffix(timed)
    return f"""
define internal void @work{name}({_PARAMETERS}{stamps}) nounwind noinline {{
entry:
{field_address("%done", DONE)}{load_i64s(patience=PATIENCE)}{load_field("%yield.f", "ptr", YIELD)}  br label %step
step:
  %k = phi i64 [%first, %entry], [%k1, %advance]
  %greedy = phi i64 [0, %entry], [%stole1, %advance]
{start}{_row()}{load_i64s("%row", grain=24, share=32, longer=40, target=48)}
  %serial = add i64 %serial0, %k
  %tagged = shl i64 %serial, {CHUNK_BITS}
{_CLAIM}{end}  %k1 = add nuw i64 %k, 1
  %more = icmp ult i64 %k1, %count
  br i1 %more, label %step, label %leave
leave:
  ret void
}}
"""


def _shared(timed: bool) -> str:
    """Emit ``@run_shared``, the caller's side: publish the call, wake parked workers, take part, close the call."""
    name, stamps, _, _ = _suffix(timed)
    fields = ("ptr %table", "i64 %count", "i64 %serial", "i64 %done0", "i64 %threads", "ptr %scratch", "i64 %stride")
    job = "".join(
        field_address(f"%j{i}", JOB + 8 * i) + f"  store {field}, ptr %j{i}, align 8\n"
        for i, field in enumerate(fields)
    )
    arguments = "ptr %ctx, i64 0, ptr %table, i64 %count, i64 0, i64 %serial, i64 %done0, i64 %threads, ptr %scratch"
    return f"""
define void @run_shared{name}(
    ptr %ctx, ptr %table, i64 %count, i64 %threads, ptr %scratch, i64 %stride{stamps}) nounwind {{
entry:
{load_i64s(serial=SERIAL)}{field_address("%done", DONE)}  %done0 = load atomic i64, ptr %done acquire, align 8
  fence release
{job}{field_address("%epoch", EPOCH)}  %odd = load atomic i64, ptr %epoch monotonic, align 8
  %even = add i64 %odd, 1
  store atomic i64 %even, ptr %epoch seq_cst, align 8
{field_address("%parked.at", PARKED)}  %parked = load atomic i32, ptr %parked.at seq_cst, align 4
  %asleep = icmp ne i32 %parked, 0
  br i1 %asleep, label %rouse, label %go
rouse:
  call void @wake(ptr %ctx)
  br label %go
go:
  call void @work{name}({arguments}{stamps})
  %closed = add i64 %even, 1
  store atomic i64 %closed, ptr %epoch seq_cst, align 8
  %after = add i64 %serial, %count
  store i64 %after, ptr %serial.at, align 8
  ret void
}}
"""


_DECLARED = """declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)
"""
_MACHINE = {
    "x86_64": "declare void @llvm.x86.sse2.pause()\ndeclare i64 @llvm.readcyclecounter()\n"
    "define internal void @relax() alwaysinline nounwind {\n  call void @llvm.x86.sse2.pause()\n  ret void\n}\n"
    "define i64 @now() nounwind {\n  %t = call i64 @llvm.readcyclecounter()\n  ret i64 %t\n}\n",
    "aarch64": "declare void @llvm.aarch64.hint(i32)\ndeclare i64 @llvm.read_volatile_register.i64(metadata)\n"
    "define internal void @relax() nounwind {\n  call void @llvm.aarch64.hint(i32 1)\n  ret void\n}\n"
    "define i64 @now() nounwind {\n  %t = call i64 @llvm.read_volatile_register.i64(metadata !0)\n  ret i64 %t\n}\n"
    '!0 = !{!"cntvct_el0"}\n',  # by name: inline assembly needs the AArch64 asm parser
}


@cache
def driver_text(machine: str) -> str:
    """The driver's LLVM module for an architecture."""
    parts = [_single_threaded(False), _single_threaded(True), _work(False), _work(True), _shared(False), _shared(True)]
    return "".join([_DECLARED, _MACHINE[machine], *parts, WORKER])
