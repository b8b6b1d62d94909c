"""The front end of a model that reads a signal: it shortens a sequence of frames into the positions of an encoder.

Two strided convolutions over time, whose channels are all numbers of a frame, then a linear map. A spectrogram has a
hundred frames per second, of which neighbours are alike; a quarter of them is enough for attention. Convolutions over
time and features, as in Speech-Transformer (Dong et al. 2018), learned more slowly and took longer: see docs/log.md.

Shapes: B batch, L frames, F numbers per frame, C channels, S positions, D width.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.models.transducer import FRAMES_PER_POSITION, Source

_LAYERS = 2
_STRIDE = 2
_KERNEL = 5  # frames; 3 learns more slowly
assert _STRIDE**_LAYERS == FRAMES_PER_POSITION, "the layers shorten a signal by this factor"


class FrontEnd(nn.Module):
    """Convolutions that turn frames into vectors of the model's width."""

    def __init__(self, frame_width: int, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(inputs, outputs, _KERNEL, stride=_STRIDE, padding=_KERNEL // 2)
            for inputs, outputs in pairwise([frame_width, *[width] * _LAYERS])
        )
        self.projection = nn.Linear(width, width)

    def forward(self, source: Source) -> tuple[Tensor, Tensor]:  # B S D, and B S: False at padding
        """Return the vectors and the mask of the positions; padding has no influence on the others."""
        x, mask = source.values.transpose(1, 2), source.mask  # B F L
        for convolution in self.convolutions:
            x = F.relu(convolution(x))  # B C L/2
            mask = mask[:, ::_STRIDE]  # a position is padding if the frame in its middle is
            x = x * mask[:, None]  # the next layer must read zeros beyond the end, as at the end of a batch
        vectors: Tensor = self.projection(x.transpose(1, 2))  # B S D
        vectors = vectors * math.sqrt(self.projection.out_features)  # as token embeddings are
        return torch.where(mask[..., None], vectors, 0.0), mask
