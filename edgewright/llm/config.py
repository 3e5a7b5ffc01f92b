"""``DecoderConfig``: one decoder with switches, which every supported family is an instance of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgewright.errors import UsageError
from edgewright.llm.rope import Rope, is_real, scaled_rope

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3", "phi3", "mistral")
_MAX_SIZE, _MAX_LAYERS = 1 << 24, 1 << 10
_LAYER_TYPES = ("full_attention", "sliding_attention")
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and switches of a decoder.

    Linear layers have a bias if the checkpoint has one. ``sliding_layers``: whether a layer attends to the last
    ``window`` positions only, and rotates by ``local_rope`` if there is one. ``post_norms``: the outputs of attention
    and of the feed-forward network are normalized before they are added to the residual.
    """

    family: str
    vocab_size: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_dim: int
    norm_eps: float
    context_length: int
    rope: Rope
    local_rope: Rope | None = None
    activation: str = "silu"
    qk_norm: bool = False
    post_norms: bool = False
    embedding_scale: float = 1.0
    attention_scale: float | None = None  # None: 1 / sqrt(head_dim)
    logit_softcap: float | None = None
    window: int = 0
    sliding_layers: tuple[bool, ...] = ()
    tied: bool = False

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "dim", "layers", "heads", "kv_heads", "head_dim", "ffn_dim", "context_length")
        for name in sizes:
            _check_size(name, getattr(self, name), _MAX_LAYERS if name == "layers" else _MAX_SIZE)
        if self.heads % self.kv_heads:
            raise UsageError(
                "heads", f"must be a multiple of the {self.kv_heads} key and value heads", value=self.heads
            )
        if self.rope.dim > self.head_dim:
            raise UsageError("rotary embedding", f"must fit heads of {self.head_dim} elements", value=self.rope.dim)
        if not (math.isfinite(self.norm_eps) and self.norm_eps >= 0):
            raise UsageError("norm_eps", "must be a number, 0 or more", value=self.norm_eps)
        if self.sliding_layers and (len(self.sliding_layers) != self.layers or self.window < 1):
            rule = f"need a window, and a flag for each of {self.layers} layers"
            raise UsageError("sliding layers", rule, value=f"window {self.window}, {len(self.sliding_layers)} flags")

    def is_sliding(self, layer: int) -> bool:
        return bool(self.sliding_layers) and self.sliding_layers[layer]

    def layer_rope(self, layer: int) -> Rope:
        """The rotation of a layer."""
        return self.local_rope if self.local_rope is not None and self.is_sliding(layer) else self.rope

    def to_dict(self) -> dict[str, Any]:
        """The configuration as JSON stores it, without the factors of frequencies, which are in the tables."""
        content = asdict(self)
        for name in ("rope", "local_rope"):
            if content[name] is not None:
                content[name] = {"theta": content[name]["theta"], "dim": content[name]["dim"]}
        return {**content, "sliding_layers": list(self.sliding_layers)}


def _check_size(name: str, value: object, limit: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise UsageError(name, f"must be an integer from 1 to {limit}", value=value)


# ------------------------------------------------------------------------------------------------------- Hugging Face


def from_hf(config: Mapping[str, Any]) -> DecoderConfig:
    """The decoder that a config.json describes, as transformers 4 or 5 writes it."""
    if isinstance(config.get("text_config"), dict):
        config = {**config["text_config"], "tie_word_embeddings": config.get("tie_word_embeddings", True)}
    family = {"gemma3_text": "gemma3"}.get(str(config.get("model_type")), config.get("model_type"))
    if family not in FAMILIES:
        remedy = f"Supported: {', '.join(FAMILIES)}."
        raise UsageError("config.json: model_type", "is not a supported family", value=family, remedy=remedy)
    _reject_unsupported(config)
    heads, dim = _integer(config, "num_attention_heads"), _integer(config, "hidden_size")
    head_dim = _integer(config, "head_dim", dim // heads)
    gemma = family == "gemma3"
    context = _integer(config, "max_position_embeddings", 131072 if gemma else 2048)
    rope, local_rope = _hf_ropes(config, head_dim, context, gemma)
    window, sliding = _hf_sliding(config, str(family))
    scalar = _real(config, "query_pre_attn_scalar", 256) if gemma else None
    if scalar is not None and scalar <= 0:
        raise UsageError("config.json: query_pre_attn_scalar", "must be more than 0", value=scalar)
    activation = config.get("hidden_activation", config.get("hidden_act", "gelu_pytorch_tanh" if gemma else "silu"))
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise UsageError("config.json: activation", f"must be one of {', '.join(ACTIVATIONS)}", value=activation)
    return DecoderConfig(
        family=str(family), vocab_size=_integer(config, "vocab_size"), dim=dim,
        layers=_integer(config, "num_hidden_layers"), heads=heads,
        kv_heads=_integer(config, "num_key_value_heads", heads), head_dim=head_dim,
        ffn_dim=_integer(config, "intermediate_size"), norm_eps=_real(config, "rms_norm_eps", 1e-6),
        context_length=context, rope=rope, local_rope=local_rope, activation=ACTIVATIONS[activation],
        qk_norm=family in ("qwen3", "gemma3"), post_norms=gemma, embedding_scale=math.sqrt(dim) if gemma else 1.0,
        attention_scale=None if scalar is None else scalar**-0.5,
        logit_softcap=_real(config, "final_logit_softcapping", 0.0) or None, window=window, sliding_layers=sliding,
        tied=_flag(config, "tie_word_embeddings", gemma),
    )  # fmt: skip


def _reject_unsupported(config: Mapping[str, Any]) -> None:
    for name in ("attn_logit_softcapping", "num_local_experts", "num_experts", "use_bidirectional_attention"):
        if config.get(name):
            raise UsageError(f"config.json: {name}", "is not supported", value=config[name])
    if config.get("quantization_config"):
        remedy = "Use the original checkpoint; edgewright quantizes the weights itself."
        raise UsageError("config.json: quantization_config", "is not supported", remedy=remedy)
    if config.get("pretraining_tp", 1) not in (0, 1):
        raise UsageError("config.json: pretraining_tp", "must be 1", value=config["pretraining_tp"])


def _integer(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_SIZE:
        raise UsageError(f"config.json: {name}", f"must be an integer from 1 to {_MAX_SIZE}", value=value)
    return value


def _real(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name)
    value = default if value is None else value
    if not is_real(value):
        raise UsageError(f"config.json: {name}", "must be a finite number", value=value)
    return float(value)


def _flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise UsageError(f"config.json: {name}", "must be true or false", value=value)
    return value


def _hf_ropes(config: Mapping[str, Any], head_dim: int, context: int, gemma: bool) -> tuple[Rope, Rope | None]:
    """The rotation of full layers, and that of sliding layers if it differs. transformers 4 has ``rope_theta`` and
    ``rope_scaling``, 5 has ``rope_parameters``, which may be nested by the type of layer."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        name = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
        raise UsageError(f"config.json: {name}", "must be an object", value=parameters)
    if any(isinstance(v, dict) for v in parameters.values()):
        full = _parameters(parameters, "full_attention")
        local: dict[str, Any] | None = _parameters(parameters, "sliding_attention")
    else:
        full = dict(parameters)
        local = {"rope_theta": config.get("rope_local_base_freq", 10000.0)} if gemma else None
    theta = _real(config, "rope_theta", 1e6 if gemma else 10000.0)
    for name in ("original_max_position_embeddings", "partial_rotary_factor"):  # beside the others in phi3's files
        if full.get(name) is None and config.get(name) is not None:
            full[name] = config[name]
    return _rope(full, theta, head_dim, context), None if local is None else _rope(local, theta, head_dim, context)


def _rope(scaling: Mapping[str, Any], theta: float, head_dim: int, context: int) -> Rope:
    part = _real(scaling, "partial_rotary_factor", 1.0)
    if not 0 < part <= 1:
        raise UsageError("config.json: partial_rotary_factor", "must be more than 0, and at most 1", value=part)
    dim = int(head_dim * part)
    return scaled_rope(_real(scaling, "rope_theta", theta), dim, scaling, context)


def _parameters(parameters: Any, name: str) -> dict[str, Any]:
    if not isinstance(parameters.get(name), dict):
        raise UsageError(f"config.json: rope_parameters.{name}", "must be an object", value=parameters.get(name))
    return dict(parameters[name])


def _hf_sliding(config: Mapping[str, Any], family: str) -> tuple[int, tuple[bool, ...]]:
    """The window, and which layers have it."""
    layers, window = _integer(config, "num_hidden_layers"), config.get("sliding_window")
    _check_size("config.json: num_hidden_layers", layers, _MAX_LAYERS)
    if family == "gemma3" and window is None:
        window = 4096
    if window is None or family == "llama" or (family.startswith("qwen") and not config.get("use_sliding_window")):
        return 0, ()
    window = _integer(config, "sliding_window", window)
    types = config.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or len(types) != layers or not all(kind in _LAYER_TYPES for kind in types):
            rule = f"must have one of {', '.join(_LAYER_TYPES)} for each of {layers} layers"
            raise UsageError("config.json: layer_types", rule, value=types)
        return window, tuple(kind == "sliding_attention" for kind in types)
    if family == "gemma3":
        return window, every_nth_full(layers, _integer(config, "sliding_window_pattern", 6))
    first = _integer(config, "max_window_layers", layers) if family.startswith("qwen") else 0
    return window, tuple(layer >= first for layer in range(layers))


def every_nth_full(layers: int, period: int) -> tuple[bool, ...]:
    """Sliding layers, with a full one at the end of each period.

    >>> every_nth_full(4, 2)
    (True, False, True, False)
    """
    return tuple((layer + 1) % period != 0 for layer in range(layers))


# -------------------------------------------------------------------------------------------------------------- GGUF


def from_gguf(metadata: Mapping[str, Any], *, tied: bool, divisors: Mapping[str, tuple[float, ...]]) -> DecoderConfig:
    """The decoder that a GGUF file's metadata describes.

    ``divisors``: contents of the tensors ``rope_freqs``, ``rope_factors_long`` and ``rope_factors_short``.
    """
    family = metadata.get("general.architecture")
    if family not in FAMILIES:
        remedy = f"Supported: {', '.join(f for f in FAMILIES if f != 'mistral')} (llama includes Mistral and SmolLM2)."
        raise UsageError("GGUF: general.architecture", "is not supported", value=family, remedy=remedy)
    reader = _GgufReader(metadata, str(family))
    dim, heads, layers = (reader.integer(n) for n in ("embedding_length", "attention.head_count", "block_count"))
    _check_size(f"GGUF: {family}.block_count", layers, _MAX_LAYERS)
    head_dim = reader.integer("attention.key_length", dim // heads)
    if reader.integer("attention.value_length", head_dim) != head_dim:
        raise UsageError("GGUF: attention.value_length", f"must be the key's {head_dim}",
                         value=reader.integer("attention.value_length"))  # fmt: skip
    for name in ("attn_logit_softcapping", "expert_count"):
        if reader.get(name) is not None and str(reader.get(name)) not in ("0", "0.0"):
            raise UsageError(f"GGUF: {family}.{name}", "is not supported", value=reader.get(name))
    gemma, context = family == "gemma3", reader.integer("context_length", 2048)
    window = reader.integer("attention.sliding_window", 0, low=0) if family in ("gemma3", "phi3") else 0
    sliding = (
        (every_nth_full(layers, reader.integer("attention.sliding_window_pattern", 6)) if gemma else (True,) * layers)
        if window
        else ()
    )
    tokens = metadata.get("tokenizer.ggml.tokens")
    return DecoderConfig(
        family=str(family), vocab_size=reader.integer("vocab_size", len(tokens) if isinstance(tokens, list) else None),
        dim=dim, layers=layers, heads=heads, kv_heads=reader.integer("attention.head_count_kv", heads),
        head_dim=head_dim, ffn_dim=reader.integer("feed_forward_length"),
        norm_eps=reader.real("attention.layer_norm_rms_epsilon", 1e-6), context_length=context,
        rope=_gguf_rope(reader, head_dim, context, divisors),
        local_rope=Rope(reader.real("rope.freq_base_swa", 10000.0), head_dim) if gemma else None,
        activation="gelu_tanh" if gemma else "silu", qk_norm=family in ("qwen3", "gemma3"), post_norms=gemma,
        embedding_scale=math.sqrt(dim) if gemma else 1.0,
        attention_scale=_gguf_scale(reader, gemma, dim, heads, layers),
        logit_softcap=reader.real("final_logit_softcapping", 0.0) or None, window=window, sliding_layers=sliding,
        tied=tied,
    )  # fmt: skip


class _GgufReader:
    """Metadata of one architecture, with types checked."""

    def __init__(self, metadata: Mapping[str, Any], family: str) -> None:
        self.metadata, self.family = metadata, family

    def get(self, name: str) -> Any:
        return self.metadata.get(f"{self.family}.{name}")

    def integer(self, name: str, default: int | None = None, low: int = 1) -> int:
        value: Any = self.get(name)
        value = default if value is None else value
        if hasattr(value, "tolist"):  # one number for each layer
            numbers = set(value.tolist())
            value = numbers.pop() if len(numbers) == 1 else sorted(numbers)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MAX_SIZE:
            rule = f"must be an integer from {low} to {_MAX_SIZE}, the same in all layers"
            raise UsageError(f"GGUF: {self.family}.{name}", rule, value=value)
        return value

    def real(self, name: str, default: float) -> float:
        value = self.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"GGUF: {self.family}.{name}", "must be a number", value=value)
        return float(value)


def _gguf_scale(reader: _GgufReader, gemma: bool, dim: int, heads: int, layers: int) -> float | None:
    """The factor of attention scores. Files of Gemma 3 27B (62 layers) mean another one and do not say so."""
    scale = reader.real("attention.scale", 0.0)
    if scale:
        return scale
    return (dim / heads) ** -0.5 if gemma and layers == 62 else None


def _gguf_rope(
    reader: _GgufReader, head_dim: int, context: int, divisors: Mapping[str, tuple[float, ...]]
) -> Rope:  # fmt: skip
    dim, theta = reader.integer("rope.dimension_count", head_dim), reader.real("rope.freq_base", 10000.0)
    original = reader.integer("rope.scaling.original_context_length", context)
    if "rope_factors_long" in divisors:
        amplitude = reader.real("rope.scaling.attn_factor", 0.0)
        if not amplitude:
            ratio = context / original
            amplitude = math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 and original > 1 else 1.0
        short, long = (divisors.get(f"rope_factors_{kind}", ()) for kind in ("short", "long"))
        return Rope(theta, dim, short, long, original, amplitude)
    if "rope_freqs" in divisors:
        return Rope(theta, dim, divisors["rope_freqs"])
    kind = reader.get("rope.scaling.type")
    kind = "default" if kind is None or str(kind) == "none" else str(kind)
    scaling = {"rope_type": kind, "original_max_position_embeddings": original}
    if kind != "default":
        scaling["factor"] = reader.real("rope.scaling.factor", 1.0)
    return scaled_rope(theta, dim, scaling, context)
