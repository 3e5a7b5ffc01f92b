"""Our own types are not probed: what an object may lack has a default in its base class (``Step``, ``DelegateBase``,
``Partitioner``, ``BackendInfo``).

``hasattr(x, name)`` and ``getattr(x, name, default)`` are for objects of others: modules of the operating system, torch
and vendors' SDKs, and what users pass. ``getattr(x, name)`` looks a computed name up, and is not probing.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.repository.test_architecture import ORDER, modules, package_of

COMPUTED = "(computed)"
SYSTEM = {  # os, sys and mmap; attributes of OSError
    "O_BINARY", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fchown", "register_at_fork", "sched_getaffinity", "frozen",
    "MADV_DONTNEED", "MADV_NOHUGEPAGE", "errno", "strerror",
}  # fmt: skip
TORCH = {  # nodes, operators, observers, signatures and pass results of torch and torchao; sympy's numbers
    "__module__", "__name__", "_overloadname", "_schema", "activation_post_process", "calculate_qparams", "dtype",
    "eps", "fake_mode", "graph_module", "is_Integer", "is_mutable", "meta", "modified", "name", "namespace", "passes",
    "shape", "tags", "target", COMPUTED,
}  # fmt: skip
# What probing is allowed for, by package; packages without a line probe nothing.
ALLOWED = {
    "base": SYSTEM,
    "engine": SYSTEM,
    "frontend": TORCH | {"guards", "rel_op", "shape_env"},  # of fake tensor modes and their symbols
    "lowering": TORCH | {"is_node_supported"},  # exclusions are ours, functions, or torch's OperatorSupportBase
    # a function of torchao's that is wrapped once; node finders in the manner of ExecuTorch's
    "quantize": TORCH | {"__wrapped__", "find_nodes"},
    "program": TORCH | {"get_etrecord"},  # whatever a script passes to generate_etrecord
    # compile specs, chips and schemes that users pass; NXP's descriptions of chips
    "backends": TORCH | {"__iter__", "key", "npu", "value"},
    "api": TORCH,
    "explore": {"__qualname__"},  # factories and metrics that users pass: functions, or any callable
    # jinja2's nodes, errors and callables, values in templates, arrays of checkpoints; a method for each filter
    "llm": {"lineno", "ctx", "jinja_pass_arg", "__self__", "__name__", "__len__", "tolist", COMPUTED},
    "peers": {"ggml_backend_load_all_from_path"},  # which builds of llama.cpp with one backend lack
    "compat": {"read", "to_bytes", COMPUTED},  # open files, records; ast nodes
    "cli": {"shape", "strerror"},  # outputs are arrays or numbers; errors of the system
}


def probes(source: str) -> Iterator[tuple[int, str]]:
    """The line and the name of every probe in a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            is_probe = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
            if is_probe:
                name = node.args[1]
                yield node.lineno, name.value if isinstance(name, ast.Constant) else COMPUTED


@pytest.mark.parametrize("package", ORDER)
def test_only_foreign_objects_are_probed(package: str) -> None:
    found = defaultdict(list)
    for module, path in modules().items():
        for line, name in probes(path.read_text()) if package_of(module) == package else ():
            found[name].append(f"{path.name}:{line}")
    assert {name: places for name, places in found.items() if name not in ALLOWED.get(package, ())} == {}


def test_a_probe_is_seen() -> None:
    source = (
        "getattr(step, 'end', 0); hasattr(delegate, 'prepare'); [getattr(x, n, 0) for n in y]; getattr(module, name)"
    )
    assert sorted(name for _, name in probes(source)) == [COMPUTED, "end", "prepare"]
