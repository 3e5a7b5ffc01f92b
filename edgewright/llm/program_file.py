"""The file of a language model: methods, metadata, tokenizer and description, for every target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats import schema
from edgewright.formats.pte_writer import program_chunks
from edgewright.ir.graph import Graph
from edgewright.llm.checkpoint import Checkpoint
from edgewright.llm.description import KEY, TOKENIZER_KEY, Description
from edgewright.llm.perplexity import Perplexity
from edgewright.llm.vocabulary import Vocabulary
from edgewright.llm.weights import PartReport
from edgewright.program import manifest
from edgewright.program.assemble import add_named_data, assemble
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.constants import ConstantPool
from edgewright.program.delegates import DelegatePool
from edgewright.program.emit import Emitter
from edgewright.program.memory import MemoryPlanningPass
from edgewright.program.plan_builder import EmitOptions, StockKernels

DEFAULT_MAX_CONTEXT = 2048
_ALIGNMENT = 128
ConstantMethod = Union[int, bool, float, Sequence[Any]]


@dataclass(frozen=True)
class LlmReport:
    """What was compiled: bytes of the file, seconds, and each part's precision, size and error."""

    path: Path
    family: str
    parameters: int
    size: int
    seconds: float
    max_seq_len: int
    max_context_len: int
    parts: Mapping[str, PartReport]
    tokenizer: Path | None  # the file beside the program; None if the checkpoint has no tokenizer
    has_chat_template: bool
    perplexity: Perplexity | None  # None if there was no text to measure on
    calibrated_tokens: int  # of the calibration text; 0 if there was none
    target: str = "xnnpack"
    shards: int = 1
    twin: Path | None = None  # what this machine runs in place of a device's program
    compiler: str = ""  # a vendor's; devices need the same release or a newer one


def check_output(output: str | Path) -> Path:
    path = Path(output)
    if path.suffix != ".pte":
        raise UsageError(str(path), "must end in .pte")
    return path


def choose_lengths(
    source: Checkpoint, max_seq: int | None, max_context: int | None, default_seq: int
) -> tuple[int, int]:
    """The length of a call and of the context, which the model's own context bounds."""
    limit = source.config.context_length
    context = min(DEFAULT_MAX_CONTEXT, limit) if max_context is None else max_context
    seq = min(default_seq, context) if max_seq is None else max_seq
    for name, value, bound in (("max_context_len", context, limit), ("max_seq_len", seq, context)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= bound:
            raise UsageError(name, f"must be from 1 to {bound}", value=value)
    return seq, context


def build_program(
    graphs: Sequence[Graph], methods: Mapping[str, ConstantMethod], blobs: DelegatePool, *, plan_outputs: bool = True
) -> schema.Program:
    """The program of methods and of constant methods. Inputs are in the caller's memory, and so are outputs unless
    ``plan_outputs``."""
    constants, states = ConstantPool(), ConstantPool(1)
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=plan_outputs)
    options = EmitOptions(planning, StockKernels())
    plans = [Emitter(graph, options, constants, states, blobs).plan(("", "")) for graph in graphs]
    for name, value in methods.items():
        outputs = list(value) if isinstance(value, Sequence) else [value]
        plan = Emitter(Graph(name, [], outputs), options, constants, states).plan(("", ""))
        plan.non_const_buffer_sizes = [0]
        plans.append(plan)
    return assemble(plans, constants, states, blobs, blobs.named_data, ExecutorchBackendConfig())


def end_of_text_methods(vocabulary: Vocabulary) -> dict[str, ConstantMethod]:
    """The tokens at which texts begin and end, if the vocabulary has them."""
    methods: dict[str, ConstantMethod] = {}
    if vocabulary.bos_id is not None:
        methods["get_bos_id"] = vocabulary.bos_id
    if vocabulary.eos_ids:
        methods["get_eos_ids"] = list(vocabulary.eos_ids)
        methods["get_eos_id"] = vocabulary.eos_ids[0]
    return methods


def describe(
    program: schema.Program, source: Checkpoint, quantization: Mapping[str, Any], vocabulary: Vocabulary,
    targets: Sequence[str] = (),
) -> None:  # fmt: skip
    """Add what the command line and the server need, under names that other runtimes ignore."""
    description = Description(
        family=source.config.family,
        config=source.config.to_dict(),
        quantization=dict(quantization),
        chat_template=vocabulary.chat_template,
        special_tokens=dict(vocabulary.special_tokens),
        generation=dict(vocabulary.generation),
    )
    add_named_data(program, KEY, description.to_json(), _ALIGNMENT)
    if vocabulary.tokenizer is not None:
        add_named_data(program, TOKENIZER_KEY, vocabulary.tokenizer, _ALIGNMENT)
    content = manifest.build(program, targets or manifest.targets_of(program), StockKernels.name)
    add_named_data(program, manifest.KEY, content, _ALIGNMENT)


def write(program: schema.Program, path: Path, vocabulary: Vocabulary) -> tuple[int, Path | None]:
    """Write the program, and its tokenizer beside it: the bytes of the program, and the tokenizer's file."""
    size = write_file(path, program_chunks(program, _ALIGNMENT))
    if vocabulary.tokenizer is None:
        return size, None
    tokenizer = path.with_suffix(".tokenizer.json")
    write_file(tokenizer, [vocabulary.tokenizer])
    return size, tokenizer
