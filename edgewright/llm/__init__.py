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
    "compile_checkpoint": "edgewright.llm.compile",
    "load": "edgewright.llm.generate",
}
__all__ = [*_NAMES]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
