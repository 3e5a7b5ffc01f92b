"""The driver, as LLVM IR: executes a step table on one thread or on the thread pool.

Work distribution. The units of a step are divided into chunks, and each thread owns a contiguous share of the chunks,
the same share in every step for cache locality. A thread claims chunks of its own share one by one with a
compare-and-swap, then steals from the other shares. A preempted thread therefore delays a step by at most one chunk,
and a thread that wakes late joins at whatever step is running (compare work stealing: Blumofe and Leiserson, 1999).

Claim words. A thread's claim word holds ``serial << 16 | next chunk``. Serials number steps over the process's
lifetime, so claim words only grow: a word of an earlier serial means an untouched share, one of a later serial a
finished step. Nothing is reset between steps or calls, and a thread that slept through an entire call cannot claim a
stale chunk (no ABA problem).

Epoch. ``epoch`` is even while a call is open and odd between calls. A worker sets ``busy`` before it reads the epoch,
and reads the epoch again after copying the call's description; memory a call refers to may be freed once the epoch is
odd and no worker is busy.
"""

from __future__ import annotations

from functools import cache

from edgewright.engine.jit.pool_memory import (
    CHUNK_BITS,
    CLAIM,
    DONE,
    EPOCH,
    JOB,
    MAX_CHUNKS,
    PARKED,
    PATIENCE,
    ROW,
    SERIAL,
    YIELD,
    field_address,
    load_field,
    load_i64s,
    load_pointers,
    thread_field_address,
)
from edgewright.engine.jit.worker_ir import WORKER


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
