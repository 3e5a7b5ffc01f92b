"""The host engine: compiles core graphs to machine code for this CPU.

``compile(graph)`` returns a ``CompiledGraph``, whose ``run(inputs)`` is one native call. Nothing here needs torch.
"""

from __future__ import annotations

from edgewright._lazy import lazy_names

__all__ = ["CompiledGraph", "Plan", "Specialized", "Tuning", "compile", "make_plan", "tune"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CompiledGraph": "edgewright.engine.jit.driver",
        "Plan": "edgewright.engine.plan",
        "Specialized": "edgewright.engine.jit.shape_specialization",
        "Tuning": "edgewright.engine.tuning",
        "compile": "edgewright.engine.compiler",
        "make_plan": "edgewright.engine.compiler",
        "tune": "edgewright.engine.tuning",
    },
)
