"""60 configurations of transformers, small and with random weights: built from config classes, nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.zoo.network import Call, Draw, Network, TensorOutputs, draw_calls, image
from tests.zoo.torchvision_models import library

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 96, 12, 32, 4, 2
IMAGE = 32
SAMPLES = 2048  # of audio

# What most configurations call their sizes.
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH, "max_position_embeddings": 64,
}  # fmt: skip
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**TEXT, **SPECIAL, "num_key_value_heads": 2}
VISION = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 2 * WIDTH,
    "image_size": IMAGE, "patch_size": 8,
}  # fmt: skip
BART = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 2 * WIDTH,
    "decoder_ffn_dim": 2 * WIDTH, "max_position_embeddings": 64,
}  # fmt: skip
T5 = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": HEADS}
AUDIO = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 2 * WIDTH,
    "conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 2), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
STAGES = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}


@dataclass(frozen=True)
class Row:
    """A configuration and a model class by their names, arguments of the configuration, and what the inputs are."""

    name: str
    config: str
    model: str
    inputs: str
    arguments: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)  # arguments of every call


ENCODERS = [
    Row("bert", "BertConfig", "BertForSequenceClassification", "text", TEXT),
    Row("roberta", "RobertaConfig", "RobertaModel", "text", TEXT),
    Row("distilbert", "DistilBertConfig", "DistilBertModel", "text",
        {"vocab_size": VOCABULARY, "dim": WIDTH, "n_layers": 2, "n_heads": HEADS, "hidden_dim": 64}),
    Row("electra", "ElectraConfig", "ElectraModel", "text", {**TEXT, "embedding_size": 16}),
    Row("albert", "AlbertConfig", "AlbertModel", "text", {**TEXT, "embedding_size": 16}),
    Row("mobilebert", "MobileBertConfig", "MobileBertModel", "text",
        {**TEXT, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}),
    Row("squeezebert", "SqueezeBertConfig", "SqueezeBertModel", "text", {**TEXT, "embedding_size": WIDTH}),
    Row("deberta_v2", "DebertaV2Config", "DebertaV2Model", "text",
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}),
    Row("mpnet", "MPNetConfig", "MPNetModel", "text", TEXT),
    Row("modernbert", "ModernBertConfig", "ModernBertModel", "text", {**TEXT, **SPECIAL}),
    Row("fnet", "FNetConfig", "FNetModel", "text", TEXT),
    Row("convbert", "ConvBertConfig", "ConvBertModel", "text", {**TEXT, "embedding_size": 16}),
    Row("nystromformer", "NystromformerConfig", "NystromformerModel", "text",
        {**TEXT, "num_landmarks": 4, "segment_means_seq_len": LENGTH},
        {"attention_mask": torch.zeros(1, 1, 1, LENGTH)}),  # the mask it makes for itself fits no landmarks
    Row("roformer", "RoFormerConfig", "RoFormerModel", "text", {**TEXT, "embedding_size": WIDTH}),
    Row("esm", "EsmConfig", "EsmModel", "text", {**TEXT, "pad_token_id": 0, "position_embedding_type": "rotary"}),
]  # fmt: skip

DECODERS = [
    Row("gpt2", "GPT2Config", "GPT2LMHeadModel", "text",
        {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": 64, **SPECIAL}),
    Row("gpt_neo", "GPTNeoConfig", "GPTNeoForCausalLM", "text",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_layers": 2, "num_heads": HEADS, "window_size": 4,
         "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64, **SPECIAL}),
    Row("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", "text", {**TEXT, **SPECIAL}),
    Row("opt", "OPTConfig", "OPTForCausalLM", "text", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": WIDTH}),
    Row("bloom", "BloomConfig", "BloomForCausalLM", "text",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": 2, "n_head": HEADS}),
    Row("falcon", "FalconConfig", "FalconForCausalLM", "text", {**TEXT, **SPECIAL}),
    Row("llama", "LlamaConfig", "LlamaForCausalLM", "text", DECODER),
    Row("mistral", "MistralConfig", "MistralForCausalLM", "text", {**DECODER, "sliding_window": 6}),
    Row("qwen2", "Qwen2Config", "Qwen2ForCausalLM", "text", DECODER),
    Row("qwen3", "Qwen3Config", "Qwen3ForCausalLM", "text", {**DECODER, "head_dim": 8}),
    Row("gemma", "GemmaConfig", "GemmaForCausalLM", "text", {**DECODER, "head_dim": 8}),
    Row("gemma2", "Gemma2Config", "Gemma2ForCausalLM", "text", {**DECODER, "head_dim": 8, "sliding_window": 6}),
    Row("gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", "text", {**DECODER, "head_dim": 8, "sliding_window": 6}),
    Row("phi", "PhiConfig", "PhiForCausalLM", "text", DECODER),
    Row("stablelm", "StableLmConfig", "StableLmForCausalLM", "text", DECODER),
    Row("olmo2", "Olmo2Config", "Olmo2ForCausalLM", "text", DECODER),
    Row("smollm3", "SmolLM3Config", "SmolLM3ForCausalLM", "text", DECODER),
]  # fmt: skip

# The default calls an operator of transformers' own; products in a batch are what it exports to ExecuTorch.
_BATCHED = {**DECODER, "experts_implementation": "batched_mm"}
_EXPERTS = {**_BATCHED, "moe_intermediate_size": WIDTH, "num_experts": 4, "num_experts_per_tok": 2}
MIXTURES = [
    Row("mixtral", "MixtralConfig", "MixtralForCausalLM", "text",
        {**_BATCHED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    Row("qwen2_moe", "Qwen2MoeConfig", "Qwen2MoeForCausalLM", "text",
        {**_EXPERTS, "shared_expert_intermediate_size": WIDTH}),
    Row("olmoe", "OlmoeConfig", "OlmoeForCausalLM", "text", _EXPERTS),
    Row("switch_transformers", "SwitchTransformersConfig", "SwitchTransformersModel", "seq2seq",
        {**T5, "num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}),
]  # fmt: skip

RECURRENT = [
    Row("mamba", "MambaConfig", "MambaForCausalLM", "text",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 8, **SPECIAL}),
    Row("mamba2", "Mamba2Config", "Mamba2ForCausalLM", "text",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8,
         "head_dim": 8, "n_groups": 1, "chunk_size": 4, **SPECIAL}),
    Row("recurrent_gemma", "RecurrentGemmaConfig", "RecurrentGemmaForCausalLM", "text",
        {**DECODER, "num_hidden_layers": 3, "lru_width": WIDTH, "attention_window_size": 8}),
    Row("rwkv", "RwkvConfig", "RwkvForCausalLM", "text",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "context_length": 64, **SPECIAL}),
    Row("lfm2", "Lfm2Config", "Lfm2ForCausalLM", "text",
        {**DECODER, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
]  # fmt: skip

ENCODER_DECODERS = [
    Row("t5", "T5Config", "T5Model", "seq2seq", T5),
    Row("mt5", "MT5Config", "MT5Model", "seq2seq", {**T5, "feed_forward_proj": "gated-gelu"}),
    Row("bart", "BartConfig", "BartModel", "seq2seq", BART),
    Row("marian", "MarianConfig", "MarianModel", "seq2seq", {**BART, "pad_token_id": 0}),
    Row("pegasus", "PegasusConfig", "PegasusModel", "seq2seq", BART),
]  # fmt: skip

IMAGES = [
    Row("vit", "ViTConfig", "ViTForImageClassification", "image", VISION),
    Row("deit", "DeiTConfig", "DeiTModel", "image", VISION),
    Row("dinov2", "Dinov2Config", "Dinov2Model", "image", {**VISION, "mlp_ratio": 2}),
    Row("beit", "BeitConfig", "BeitModel", "image", {**VISION, "use_relative_position_bias": True}),
    Row("swin", "SwinConfig", "SwinModel", "image",
        {"image_size": IMAGE, "patch_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4],
         "window_size": 4}),
    Row("convnextv2", "ConvNextV2Config", "ConvNextV2Model", "image", {**STAGES}),
    Row("segformer", "SegformerConfig", "SegformerModel", "image",
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
         "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}),
    Row("mobilevit", "MobileViTConfig", "MobileViTModel", "image",
        {"image_size": IMAGE, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 24, 32, 40, 40]}),
    Row("resnet", "ResNetConfig", "ResNetModel", "image",
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}),
    Row("poolformer", "PoolFormerConfig", "PoolFormerModel", "image",
        {"hidden_sizes": [16, 32], "depths": [1, 1], "num_encoder_blocks": 2, "patch_sizes": [7, 3],
         "strides": [4, 2], "padding": [2, 1]}),
    Row("pvt_v2", "PvtV2Config", "PvtV2ForImageClassification", "image",
        {"image_size": IMAGE, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1],
         "num_attention_heads": [1, 1, 2, 2]}),
]  # fmt: skip

SOUNDS = [
    Row("wav2vec2", "Wav2Vec2Config", "Wav2Vec2Model", "audio", AUDIO),
    Row("hubert", "HubertConfig", "HubertModel", "audio", AUDIO),
    Row("ast", "ASTConfig", "ASTModel", "spectrogram",
        {**{k: v for k, v in VISION.items() if k != "image_size"}, "max_length": 32, "num_mel_bins": 32,
         "frequency_stride": 8, "time_stride": 8}),
]  # fmt: skip
ROWS = [*ENCODERS, *DECODERS, *MIXTURES, *RECURRENT, *ENCODER_DECODERS, *IMAGES, *SOUNDS]


def choose() -> dict[str, int]:
    return {row.name: sum(p.numel() for p in _create(row).parameters()) for row in ROWS}


def _create(row: Row) -> Any:
    library()  # transformers imports torchvision
    import transformers

    config = getattr(transformers, row.config)(**row.arguments)
    config.use_cache = False
    return getattr(transformers, row.model)(config).eval()


def build(name: str) -> Network:
    row = next(row for row in ROWS if row.name == name)
    names, draw = INPUTS[row.inputs]
    module = TensorOutputs(_create(row), names, only=1, return_dict=False, **row.fixed)
    return Network(module, draw_calls(name, draw))


def _tokens(random: torch.Generator) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, LENGTH), generator=random)


def _text(random: torch.Generator) -> Call:
    return (_tokens(random),)


def _seq2seq(random: torch.Generator) -> Call:
    return _tokens(random), _tokens(random)


def _image(random: torch.Generator) -> Call:
    return (image((1, 3, IMAGE, IMAGE), random),)


def _audio(random: torch.Generator) -> Call:
    return (torch.randn(1, SAMPLES, generator=random),)


def _spectrogram(random: torch.Generator) -> Call:
    return (torch.randn(1, 32, 32, generator=random),)


INPUTS: dict[str, tuple[Sequence[str], Draw]] = {
    "text": (("input_ids",), _text),
    "seq2seq": (("input_ids", "decoder_input_ids"), _seq2seq),
    "image": (("pixel_values",), _image),
    "audio": (("input_values",), _audio),
    "spectrogram": (("input_values",), _spectrogram),
}
