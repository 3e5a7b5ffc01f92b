"""The memory planner: what is alive at once never overlaps, offsets are aligned, and simple cases are optimal."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.formats import schema
from edgewright.program.inplace import MethodCalls, merge_in_place
from edgewright.program.memory import Allocation, Block, peak_live_bytes, plan_arena
from tests.support.examples import given_examples

ALIGNMENTS = st.sampled_from([1, 2, 16, 64, 1024])


@st.composite
def blocks(draw: st.DrawFn, most: int = 40) -> list[Block]:
    made = []
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(-1, 30))
        size = draw(st.one_of(st.integers(0, 300), st.sampled_from([0, 1, 16, 17, 4096, 2**40])))
        made.append(Block(size, start, start + draw(st.integers(0, 12))))
    return made


def overlapping(a: Block, b: Block) -> bool:
    """True if two blocks are alive at once and share a byte."""
    shared = a.offset < b.offset + b.size and b.offset < a.offset + a.size
    return a.overlaps(b) and shared and a.size > 0 and b.size > 0


@given_examples(blocks(), ALIGNMENTS, few=80, many=1000)
def test_blocks_alive_at_once_never_overlap(made: list[Block], alignment: int) -> None:
    size = plan_arena(made, alignment)
    assert not [pair for pair in itertools.combinations(made, 2) if overlapping(*pair)]
    assert all(block.offset % alignment == 0 for block in made)
    assert all(block.offset >= 0 and block.offset + block.size <= size for block in made)
    assert size == max((block.offset + block.size for block in made), default=0), "no more than is used"


@given_examples(blocks(), ALIGNMENTS, few=50, many=1000)
def test_the_arena_is_between_what_is_alive_at_once_and_everything(made: list[Block], alignment: int) -> None:
    everything = sum(-(-block.size // alignment) * alignment for block in made)
    assert peak_live_bytes(made) <= plan_arena(made, alignment) <= everything


@settings(deadline=None, max_examples=100)
@given(blocks(12))
def test_the_same_blocks_get_the_same_offsets(made: list[Block]) -> None:
    plan_arena(made)
    first = [block.offset for block in made]
    assert plan_arena(made) >= 0
    assert [block.offset for block in made] == first


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_blocks_one_after_the_other_need_the_largest(sizes: list[int]) -> None:
    assert plan_arena([Block(size, at, at) for at, size in enumerate(sizes)]) == max(sizes)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_blocks_all_at_once_need_their_sum(sizes: list[int]) -> None:
    assert plan_arena([Block(size, 0, 1) for size in sizes], 1) == sum(sizes)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=20))
def test_a_chain_needs_at_most_half_more_than_its_largest_neighbours(sizes: list[int]) -> None:
    """Each made from the one before: input and output of one instruction are all that is alive."""
    chain = [Block(size * 16, at, at + 1) for at, size in enumerate(sizes)]
    assert plan_arena(chain) <= peak_live_bytes(chain) * 3 // 2
    alternating = [Block((16, 64)[at % 2], at, at + 1) for at in range(len(sizes))]
    assert plan_arena(alternating) == 80


def test_nothing_needs_nothing() -> None:
    assert plan_arena([]) == 0
    assert plan_arena([Block(0, 0, 3), Block(0, 1, 2)]) == 0


def test_a_block_is_alive_in_its_first_and_last_instruction() -> None:
    assert plan_arena([Block(16, 0, 1), Block(16, 1, 2)]) == 32
    assert plan_arena([Block(16, 0, 1), Block(16, 2, 3)]) == 16


# -------------------------------------------------------------------------------------------------------- in place


def relu(shape: tuple[int, ...] = (4,), **changes: object) -> tuple[Allocation, Allocation, MethodCalls]:
    """Two tensors and ``relu`` of one into the other, as instruction 3."""
    tensors = [schema.Tensor(scalar_type=6, sizes=shape, dim_order=tuple(range(len(shape)))) for _ in range(2)]
    for name, content in changes.items():
        setattr(tensors[1], name, content)
    places = [Allocation(Block(16, 0, 3), True), Allocation(Block(16, 3, 9), True)]
    call = schema.KernelCall(op_index=0, args=[0, 1, 1])
    calls = MethodCalls(tensors, [call] * 4, ["aten::relu.out"], dict(enumerate(places)))
    return places[0], places[1], calls


def test_a_result_takes_the_block_of_an_operand_that_ends_there() -> None:
    source, out, calls = relu()
    view = Allocation(out.block, True)  # another name of the result
    calls = MethodCalls(calls.values, calls.instructions, calls.operators, {**calls.allocations, 2: view})
    merge_in_place(calls, set())
    assert out.block is source.block is view.block
    assert (source.block.start, source.block.end) == (0, 9)


@pytest.mark.parametrize(
    "changes",
    [{"scalar_type": 3}, {"sizes": (2, 2), "dim_order": (0, 1)}, {"dim_order": (1,)}, {"shape_dynamism": 1}],
    ids=str,
)
def test_a_result_of_another_kind_has_a_block_of_its_own(changes: dict[str, object]) -> None:
    source, out, calls = relu(**changes)
    merge_in_place(calls, set())
    assert out.block is not source.block


def test_what_is_needed_later_is_not_written_over() -> None:
    source, out, calls = relu()
    source.block.end = 4
    merge_in_place(calls, set())
    assert out.block is not source.block


@pytest.mark.parametrize("who", ["source", "out"])
def test_memory_of_the_caller_is_not_shared(who: str) -> None:
    source, out, calls = relu()
    {"source": source, "out": out}[who].planned = False
    merge_in_place(calls, set())
    assert out.block is not source.block


def test_state_is_not_written_over() -> None:
    source, out, calls = relu()
    merge_in_place(calls, {source.block})
    assert out.block is not source.block
