"""Language models, without torch: ``edgewright.llm.load("smol.pte").chat([{"role": "user", "content": "Hi"}])``."""

from __future__ import annotations

from edgewright._lazy import lazy_names

_NAMES: dict[str, str] = {
    "ChatTemplate": "edgewright.llm.chat_template",
    "Description": "edgewright.llm.description",
    "Generation": "edgewright.llm.generation",
    "GenerationOptions": "edgewright.llm.generation",
    "LanguageModel": "edgewright.llm.generate",
    "Precision": "edgewright.llm.weights",
    "SamplingOptions": "edgewright.llm.sampling",
    "Tokenizer": "edgewright.llm.tokenizer",
    "StaticPrecision": "edgewright.llm.static_weights",
    "compile_checkpoint": "edgewright.llm.compile",
    "compile_for_qualcomm": "edgewright.llm.compile_qualcomm",
    "load": "edgewright.llm.generate",
}
__all__ = [*_NAMES]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
