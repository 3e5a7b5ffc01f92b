"""The networks measured, at the sizes people deploy, with random weights, and statistics as if trained.

Each is built by torchvision, timm or transformers where these have it; the others are in ``images`` and ``sequences``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from images import Espcn, UNet, Yolo
from sequences import ConvTasNet, Decoder, Encoder, Gru, Tcn, Voice, Wide
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.modules.batchnorm import _BatchNorm

GROUP = 32  # of weights in 4 bits
Draw = Callable[[torch.Generator], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Entry:
    """A network and its inputs. ``attention``: it has attention, which some quantizers want to know; ``dynamic``: in
    int8, activations are quantized at run time, as is usual for transformers of text and sound."""

    create: Callable[[], nn.Module]
    draw: Draw
    attention: bool = False
    dynamic: bool = False
    precisions: tuple[str, ...] = ("fp32", "int8")


# ------------------------------------------------------------------------------------------------------------- inputs


def image(size: int, channels: int = 3) -> Draw:
    """Smooth noise: ranges as in photographs, not the flat spectrum of white noise."""

    def draw(random: torch.Generator) -> tuple[Tensor, ...]:
        coarse = torch.randn(1, channels, size // 8, size // 8, generator=random)
        return (F.interpolate(coarse, size=(size, size), mode="bilinear"),)

    return draw


def noise(*shapes: tuple[int, ...]) -> Draw:
    return lambda random: tuple(torch.randn(shape, generator=random) for shape in shapes)


def tokens(count: int, vocabulary: int) -> Draw:
    return lambda random: (torch.randint(vocabulary, (1, count), generator=random),)


def token_at_position(random: torch.Generator) -> tuple[Tensor, ...]:
    return torch.randint(8192, (1, 1), generator=random), torch.randint(100, 200, (1,), generator=random)


# ---------------------------------------------------------------------------------------------------------- libraries


class FirstTensor(nn.Module):
    """The first tensor of a model's output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        output = self.model(*inputs)
        while not isinstance(output, Tensor):
            output = next(iter(output.values() if hasattr(output, "values") else output))
        return output


def library() -> Any:
    """torchvision; without its compiled operators, which no network here uses, two must be declared first."""
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
        import torchvision
    return torchvision


def _torchvision(name: str, **options: Any) -> nn.Module:
    model = library().models.get_model(name, weights=None, **options)
    if name.startswith("vit_"):
        model.heads.head.reset_parameters()  # all 0 else, as are the logits
    return FirstTensor(model) if name.startswith(("deeplab", "lraspp")) else model


def _timm(name: str) -> nn.Module:
    library()  # timm imports torchvision
    import timm
    from timm.utils.model import reparameterize_model

    return reparameterize_model(timm.create_model(name))


def _transformer(config: str, model: str, **sizes: Any) -> nn.Module:
    library()  # transformers imports torchvision
    import transformers

    created = getattr(transformers, model)._from_config(getattr(transformers, config)(**sizes))
    return FirstTensor(created.encoder if model == "WhisperModel" else created)


class DetectorHeads(nn.Module):
    """A detector up to the logits of every anchor. What follows (decoding, NMS) returns as many boxes as it finds."""

    def __init__(self) -> None:
        super().__init__()
        detection = library().models.detection
        model = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        self.backbone, self.head = model.backbone, model.head.classification_head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(list(self.backbone(x).values()))


# ------------------------------------------------------------------------------------------------------------ the list

_BERT = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
_T5 = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "use_cache": False}
_WHISPER = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
_CLIP = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
         "patch_size": 32}  # fmt: skip
_TORCHVISION = (
    "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "mnasnet1_0", "efficientnet_b0", "efficientnet_v2_s",
    "regnet_y_400mf", "regnet_x_800mf", "shufflenet_v2_x1_0", "squeezenet1_1", "densenet121", "resnet18", "resnet50",
    "resnext50_32x4d", "convnext_tiny",
)  # fmt: skip
_TIMM = ("mobilenetv4_conv_small", "ghostnet_100", "mixnet_s", "repvgg_a0", "mobileone_s0")
_WITHOUT_LOSSES = {"aux_logits": False, "init_weights": True}

SUITE: dict[str, Entry] = {
    **{name: Entry(partial(_torchvision, name), image(224)) for name in _TORCHVISION},
    "googlenet": Entry(partial(_torchvision, "googlenet", **_WITHOUT_LOSSES), image(224)),
    "inception_v3": Entry(partial(_torchvision, "inception_v3", **_WITHOUT_LOSSES), image(299)),
    "swin_t": Entry(partial(_torchvision, "swin_t"), image(224), attention=True),
    "vit_b_16": Entry(partial(_torchvision, "vit_b_16"), image(224), attention=True),
    "deeplabv3_mobilenet_v3_large": Entry(
        partial(_torchvision, "deeplabv3_mobilenet_v3_large", weights_backbone=None), image(256)
    ),
    "lraspp_mobilenet_v3_large": Entry(
        partial(_torchvision, "lraspp_mobilenet_v3_large", weights_backbone=None), image(256)
    ),
    "ssdlite320_mobilenet_v3_large": Entry(DetectorHeads, image(320)),
    **{name: Entry(partial(_timm, name), image(224)) for name in _TIMM},
    "mobilevit_xs": Entry(partial(_timm, "mobilevit_xs"), image(256), attention=True),
    "edgenext_x_small": Entry(partial(_timm, "edgenext_x_small"), image(256), attention=True),
    "unet": Entry(UNet, image(256)),
    "yolov8n": Entry(Yolo, image(320)),
    "espcn": Entry(Espcn, image(224, channels=1)),
    "tcn": Entry(Tcn, noise((1, 40, 101))),
    "conv_tasnet": Entry(ConvTasNet, noise((1, 1, 8000))),
    "gru": Entry(Gru, noise((1, 101, 40)), precisions=("fp32",)),
    "lstm": Entry(Voice, noise((1, 512), (1, 1, 128), (1, 1, 128)), precisions=("fp32",)),
    "bert_base_128": Entry(Encoder, noise((1, 128, 768)), dynamic=True),
    "minilm": Entry(partial(_transformer, "BertConfig", "BertModel", **_BERT), tokens(128, 30522), dynamic=True),
    "distilbert": Entry(
        partial(_transformer, "DistilBertConfig", "DistilBertModel"), tokens(128, 30522), dynamic=True
    ),
    "t5_small_encoder": Entry(
        partial(_transformer, "T5Config", "T5EncoderModel", **_T5), tokens(64, 32128), dynamic=True
    ),
    "whisper_tiny_encoder": Entry(
        partial(_transformer, "WhisperConfig", "WhisperModel", **_WHISPER), noise((1, 80, 3000)), dynamic=True
    ),
    "wav2vec2": Entry(
        partial(_transformer, "Wav2Vec2Config", "Wav2Vec2Model", layerdrop=0.0), noise((1, 16000)), dynamic=True
    ),
    "clip_vision": Entry(
        partial(_transformer, "CLIPVisionConfig", "CLIPVisionModel", **_CLIP), image(224), dynamic=True
    ),
    "decoder": Entry(Decoder, token_at_position, precisions=("fp32", "int4")),
    "linear4": Entry(Wide, noise((1, 4096)), precisions=("int4",)),
}  # fmt: skip


def examples(name: str, count: int = 1) -> list[tuple[Tensor, ...]]:
    """So many inputs of a network, the same in every interpreter."""
    random = torch.Generator().manual_seed(7)
    return [SUITE[name].draw(random) for _ in range(count)]


def make(name: str, weights: Path) -> nn.Module:
    """The network in eval mode. Weights are made once and kept in a file, so that every interpreter has the same."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = SUITE[name].create()
    if weights.exists():
        model.load_state_dict(torch.load(weights, weights_only=True))
        return model.eval()
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    for norm in norms:
        norm.momentum = None  # a plain average
    if norms:
        with torch.no_grad():
            model.train()(*(torch.cat(operands) for operands in zip(*examples(name, 8), strict=True)))
    torch.save(model.state_dict(), weights)
    return model.eval()
