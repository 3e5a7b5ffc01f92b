"""Every common torch.nn layer and activation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.program.case import Case


def image(*shape: int):
    return lambda **_: (torch.randn(shape),)


class Attention(nn.Module):
    """Self-attention through nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x, x, x)


class Bag(nn.Module):
    """Embeddings with padding, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Embedding(10, 4, padding_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).sum(1)


def qkv(heads: int = 2, groups: int = 2, n: int = 5):
    return lambda **_: (torch.randn(1, heads, n, 8), torch.randn(1, groups, n, 8), torch.randn(1, groups, n, 8))


def masked_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def additive_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.5)


CONVOLUTIONS = [
    Case("conv1d", nn.Conv1d(3, 4, 3, stride=2, padding=1), image(2, 3, 9)),
    Case("conv1d_unbatched", nn.Conv1d(3, 4, 3), image(3, 9)),
    Case("conv2d_groups_dilation", nn.Conv2d(4, 6, 3, groups=2, dilation=2, bias=False), image(1, 4, 8, 8)),
    Case("conv2d_same", nn.Conv2d(2, 3, (4, 3), padding="same"), image(1, 2, 7, 6)),
    Case("conv2d_valid", nn.Conv2d(2, 3, 3, padding="valid", stride=(1, 2)), image(1, 2, 7, 6)),
    Case("conv2d_reflect", nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), image(1, 2, 7, 6)),
    Case("conv2d_circular", nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), image(1, 2, 7, 6)),
    Case("conv2d_depthwise", nn.Conv2d(4, 4, 3, groups=4, padding=1), image(1, 4, 6, 6)),
    Case("conv3d", nn.Conv3d(2, 3, (2, 3, 3), padding=(0, 1, 1), stride=(1, 2, 2)), image(1, 2, 4, 6, 6)),
    Case("conv_transpose1d", nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1), image(1, 3, 6)),
    Case("conv_transpose2d", nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1, groups=2), image(1, 4, 5, 5)),
    Case("conv_transpose2d_dilated", nn.ConvTranspose2d(2, 3, 3, dilation=2, padding=1), image(1, 2, 5, 5)),
    Case("conv_transpose3d", nn.ConvTranspose3d(2, 3, 3, stride=2, padding=1), image(1, 2, 3, 4, 4)),
    Case("conv_bn_relu", nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), image(1, 3, 6, 6)),
    Case("fold_unfold", lambda x: F.fold(F.unfold(x, 2, stride=2), (4, 6), 2, stride=2), image(1, 2, 4, 6)),
]

NORMS = [
    Case("batch_norm1d", nn.BatchNorm1d(4), image(3, 4)),
    Case("batch_norm3d", nn.BatchNorm3d(2, affine=False), image(1, 2, 3, 3, 3)),
    Case("layer_norm", nn.LayerNorm((3, 4)), image(2, 3, 4)),
    Case("layer_norm_plain", nn.LayerNorm(4, elementwise_affine=False), image(2, 3, 4)),
    Case("group_norm", nn.GroupNorm(2, 4), image(2, 4, 3, 3)),
    Case("instance_norm", nn.InstanceNorm2d(3, affine=True), image(2, 3, 4, 4)),
    Case("rms_norm", nn.RMSNorm(6), image(2, 6)),
    Case("local_response_norm", nn.LocalResponseNorm(3), image(1, 5, 4, 4)),
    Case("normalize", lambda x: F.normalize(x, dim=1), image(3, 5)),
    Case("cosine_similarity", lambda a, b: F.cosine_similarity(a, b), lambda: (torch.randn(3, 4), torch.randn(3, 4))),
]

POOLS = [
    Case("max_pool1d", nn.MaxPool1d(3, stride=2, padding=1), image(2, 3, 9)),
    Case("max_pool2d_ceil", nn.MaxPool2d(3, 2, ceil_mode=True), image(1, 2, 8, 8)),
    Case("max_pool2d_dilated", nn.MaxPool2d(2, 1, dilation=2), image(1, 2, 6, 6)),
    Case("max_pool2d_indices", nn.MaxPool2d(2, return_indices=True), image(1, 2, 6, 6)),
    Case("max_pool3d", nn.MaxPool3d(2), image(1, 2, 4, 4, 4)),
    Case("avg_pool1d", nn.AvgPool1d(3, 2, 1), image(2, 3, 9)),
    Case("avg_pool2d", nn.AvgPool2d(3, 2, 1, count_include_pad=False), image(1, 2, 7, 7)),
    Case("avg_pool3d", nn.AvgPool3d(2), image(1, 2, 4, 4, 4)),
    Case("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((3, 2)), image(1, 2, 7, 5)),
    Case("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(3), image(1, 2, 7)),
    Case("adaptive_avg_pool3d", nn.AdaptiveAvgPool3d(2), image(1, 2, 4, 4, 4)),
    Case("adaptive_max_pool2d", nn.AdaptiveMaxPool2d(2), image(1, 2, 6, 6)),
    Case("adaptive_max_pool1d", nn.AdaptiveMaxPool1d(2), image(1, 2, 5)),
    Case("lp_pool", nn.LPPool2d(2, 2), image(1, 2, 4, 4)),
    Case("upsample_nearest", nn.Upsample(scale_factor=2), image(1, 2, 3, 4)),
    Case("upsample_bilinear", nn.Upsample(size=(5, 7), mode="bilinear"), image(1, 2, 3, 4)),
    Case(
        "upsample_bilinear_corners", nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), image(1, 2, 3, 4)
    ),
    Case("upsample_bicubic", nn.Upsample(scale_factor=2, mode="bicubic"), image(1, 2, 3, 4)),
    Case("upsample_linear", nn.Upsample(scale_factor=2, mode="linear"), image(1, 2, 5)),
    Case("upsample_trilinear", nn.Upsample(scale_factor=2, mode="trilinear"), image(1, 2, 3, 3, 3)),
    Case("upsample_nearest1d", nn.Upsample(scale_factor=3), image(1, 2, 5)),
    Case("upsample_nearest_exact", nn.Upsample(size=(5, 5), mode="nearest-exact"), image(1, 2, 3, 4)),
    Case("bilinear_antialias", lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True), image(1, 2, 6, 5)),
    Case("pixel_shuffle", nn.PixelShuffle(2), image(1, 8, 3, 3)),
    Case("pixel_unshuffle", nn.PixelUnshuffle(2), image(1, 2, 6, 6)),
    Case("channel_shuffle", nn.ChannelShuffle(2), image(1, 4, 3, 3)),
    Case(
        "grid_sample",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda: (torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1),
    ),
]

_ACTIVATIONS = [
    nn.ReLU(),
    nn.ReLU6(),
    nn.LeakyReLU(0.2),
    nn.PReLU(),
    nn.ELU(),
    nn.CELU(),
    nn.SELU(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.SiLU(),
    nn.Mish(),
    nn.Softplus(),
    nn.Softsign(),
    nn.Tanh(),
    nn.Tanhshrink(),
    nn.Hardtanh(),
    nn.Hardsigmoid(),
    nn.Hardswish(),
    nn.Hardshrink(),
    nn.Softshrink(),
    nn.Sigmoid(),
    nn.LogSigmoid(),
    nn.Threshold(0.1, 2.0),
    nn.GLU(),
    nn.Softmax(1),
    nn.LogSoftmax(1),
    nn.Softmin(1),
]
ACTIVATIONS = [
    Case(f"activation_{type(a).__name__.lower()}{i if i == 8 else ''}", a, image(3, 6))
    for i, a in enumerate(_ACTIVATIONS)
] + [
    Case(
        "inplace_activations",
        nn.Sequential(nn.ReLU(inplace=True), nn.Hardswish(inplace=True), nn.SiLU(inplace=True)),
        image(2, 3),
    ),
    Case("dropout", nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout(0.1)), image(2, 3, 4, 4)),
]

SEQUENCES = [
    Case("embedding", Bag, lambda: (torch.randint(0, 10, (2, 5)),)),
    Case("lstm", nn.LSTM(4, 5, num_layers=2, batch_first=True), image(2, 3, 4)),
    Case("lstm_bidirectional_projected", nn.LSTM(4, 5, bidirectional=True, proj_size=3), image(3, 2, 4)),
    Case("gru", nn.GRU(4, 5, batch_first=True), image(2, 3, 4)),
    Case("gru_state", nn.GRU(4, 5), lambda: (torch.randn(3, 2, 4), torch.randn(1, 2, 5))),
    Case("gru_bidirectional", nn.GRU(4, 5, num_layers=2, bias=False, bidirectional=True), image(3, 2, 4)),
    Case("rnn", nn.RNN(4, 5, nonlinearity="relu"), image(3, 2, 4)),
    Case("rnn_bidirectional", nn.RNN(4, 5, num_layers=2, bidirectional=True, batch_first=True), image(2, 3, 4)),
    Case("lstm_cell", nn.LSTMCell(4, 5), lambda: (torch.randn(2, 4), (torch.randn(2, 5), torch.randn(2, 5)))),
    Case("gru_cell", nn.GRUCell(4, 5), image(2, 4)),
    Case("multihead_attention", Attention, image(2, 5, 8)),
    Case(
        "transformer_encoder_layer",
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True),
        image(2, 5, 8),
    ),
    Case(
        "transformer_decoder_layer",
        nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
        lambda: (torch.randn(2, 3, 8), torch.randn(2, 4, 8)),
    ),
    Case("sdpa", F.scaled_dot_product_attention, qkv()),
    Case("sdpa_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), qkv()),
    Case("sdpa_boolean_mask", masked_attention, qkv()),
    Case("sdpa_additive_mask", additive_attention, lambda: (*qkv()(), torch.randn(5, 5))),
    Case(
        "sdpa_gqa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=True), qkv(4, 2)
    ),
    Case("linear_vector", nn.Linear(4, 3), image(4)),
    Case("linear_no_bias", nn.Linear(4, 3, bias=False), image(2, 3, 4)),
    Case("bilinear", nn.Bilinear(3, 4, 2), lambda: (torch.randn(2, 3), torch.randn(2, 4))),
    Case(
        "losses",
        lambda a, b: (F.mse_loss(a, b), F.l1_loss(a, b), F.smooth_l1_loss(a, b), F.huber_loss(a, b)),
        lambda: (torch.randn(2, 3), torch.randn(2, 3)),
    ),
]

CASES = [*CONVOLUTIONS, *NORMS, *POOLS, *ACTIVATIONS, *SEQUENCES]
