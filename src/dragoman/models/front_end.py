"""The front end of a model that reads a signal: it shortens a sequence of frames into the positions of an encoder.

Two strided convolutions over time and features, as in Dong et al. 2018 (Speech-Transformer), then a linear map. A
spectrogram has a hundred frames per second, of which neighbours are alike; a quarter of them is enough for attention.

Shapes: B batch, L frames, F numbers per frame, C channels, S positions, D width.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.models.transducer import FRAMES_PER_POSITION, Source

_CHANNELS = 32
_LAYERS = 2
_STRIDE = 2
assert _STRIDE**_LAYERS == FRAMES_PER_POSITION, "the layers shorten a signal by this factor"


class FrontEnd(nn.Module):
    """Convolutions that turn frames into vectors of the model's width."""

    def __init__(self, frame_width: int, width: int) -> None:
        super().__init__()
        sizes = [1, *[_CHANNELS] * _LAYERS]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(inputs, outputs, kernel_size=3, stride=_STRIDE, padding=1) for inputs, outputs in pairwise(sizes)
        )
        features = frame_width
        for _ in range(_LAYERS):
            features = -(-features // _STRIDE)
        self.projection = nn.Linear(_CHANNELS * features, width)

    def forward(self, source: Source) -> tuple[Tensor, Tensor]:  # B S D, and B S: False at padding
        """Return the vectors and the mask of the positions; padding has no influence on the others."""
        x, mask = source.values[:, None], source.mask  # B 1 L F
        for convolution in self.convolutions:
            x = F.relu(convolution(x))  # B C L/2 F/2
            mask = mask[:, ::_STRIDE]  # a position is padding if the frame in its middle is
            x = x * mask[:, None, :, None]  # the next layer must read zeros beyond the end, as at the end of a batch
        rows = x.transpose(1, 2).flatten(2)  # B S CF
        vectors: Tensor = self.projection(rows) * math.sqrt(self.projection.out_features)  # as token embeddings are
        return torch.where(mask[..., None], vectors, 0.0), mask
