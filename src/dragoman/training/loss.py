"""Cross-entropy with label smoothing (section 5.4), fused with the output projection.

The logits of a batch, tokens × vocabulary, are by far its largest tensor. Here they never stand in memory as a whole:
a chunk of tokens at a time is projected, turned into its share of the loss and of both gradients, and forgotten.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from dragoman.tokens import PAD

CHUNK_NUMBERS = 1 << 21  # logits at a time: 8 MB, about what a core's share of the cache holds


def smoothed_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Sum over all tokens but padding: the paper's loss, as a formula. Logits (… V), target (…)."""
    log_probabilities = logits.flatten(0, -2).log_softmax(-1)  # N V
    token = target.flatten()  # N
    hit = -log_probabilities.gather(1, token[:, None])[:, 0]
    spread = -log_probabilities.mean(-1)
    return ((1 - smoothing) * hit + smoothing * spread)[token != PAD].sum()


def projected_cross_entropy(
    hidden: Tensor,  # B T D
    output: Tensor,  # V D
    target: Tensor,  # B T, padded with PAD
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss of hidden @ outputᵀ and, for the record, the loss without smoothing; both are sums."""
    real = target != PAD
    fused: Any = ProjectedCrossEntropy.apply
    loss, plain = fused(hidden[real], output, target[real], smoothing)
    return loss, plain


class ProjectedCrossEntropy(Function):
    """The gradient of softmax with cross-entropy is probabilities minus target, so it is there with the loss itself."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, output: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Compute the loss and both gradients, a chunk of tokens at a time."""
        vocabulary = len(output)
        wanted = any(ctx.needs_input_grad[:2])
        hidden_gradient, output_gradient = torch.empty_like(hidden), torch.zeros_like(output)
        loss, plain = hidden.new_zeros(()), hidden.new_zeros(())
        for start in range(0, len(hidden), max(1, CHUNK_NUMBERS // vocabulary)):
            rows = slice(start, start + max(1, CHUNK_NUMBERS // vocabulary))
            logits = F.linear(hidden[rows], output)  # N V
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            highest = logits.amax(-1, keepdim=True)
            hit = logits.gather(1, target[rows, None])
            mean = logits.mean(-1, keepdim=True)
            probabilities = logits.sub_(highest).exp_()
            total = probabilities.sum(-1, keepdim=True)
            log_total = total.log() + highest
            plain += (log_total - hit).sum()
            loss += (log_total - (1 - smoothing) * hit - smoothing * mean).sum()
            if wanted:
                gradient = probabilities.div_(total).sub_(smoothing / vocabulary)
                gradient.scatter_add_(1, target[rows, None], gradient.new_full((len(gradient), 1), smoothing - 1))
                gradient = gradient.to(hidden.dtype)
                hidden_gradient[rows] = gradient @ output
                output_gradient += gradient.T @ hidden[rows]
        ctx.save_for_backward(hidden_gradient, output_gradient)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale what the forward pass left behind."""
        hidden_gradient, output_gradient = ctx.saved_tensors
        return hidden_gradient * upstream[0], output_gradient * upstream[0], None, None
