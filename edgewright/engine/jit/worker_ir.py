"""LLVM IR of the worker loop: poll for a call, join it, park on a futex when idle; and of waking workers.

``@attend`` joins a call safely although the caller may close it at any time: the worker sets its busy flag, reads the
epoch, copies the job description, and reads the epoch again. If it changed, the copy may be torn and is discarded. This
is a seqlock read side plus a hazard flag (compare Michael, "Hazard Pointers", 2004): memory the job refers to is freed
only while the epoch is odd and no worker is busy. ``@serve`` avoids lost wake-ups with the usual futex pattern: count
itself as parked, re-check the epoch, then wait on that epoch value.
"""

from __future__ import annotations

from edgewright.engine.jit.pool_memory import (
    AFFINITY,
    ALLOWED,
    BUSY,
    CHUNK_BITS,
    CLAIM,
    CORE,
    EPOCH,
    FUTEX,
    GETCPU,
    JOB,
    MASK,
    MASK_BYTES,
    PARKED,
    SEEN,
    SPIN,
    STOP,
    SYSCALL,
    THREADS,
    TIDS,
    WORKERS,
    field_address,
    load_i64s,
    load_pointers,
    thread_field_address,
)

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
