"""Cross-entropy with label smoothing (section 5.4), fused with the output projection.

The logits of a batch, tokens × vocabulary, are by far its largest tensor, so they are never in memory as a whole: the
tokens are projected in chunks, and each chunk adds to the loss and to both gradients.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from dragoman import native
from dragoman.models.transducer import Memory, Transducer
from dragoman.models.transformer import Transformer
from dragoman.tokens import PAD, token_mask
from dragoman.training.loop import LossSums, Objective, TensorBatch

CHUNK_LOGITS = 1 << 21  # per chunk: 8 MB, about a core's share of the cache


def smoothed_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Return the paper's loss as a formula, summed over all tokens except padding. Logits (… V), target (…)."""
    log_probabilities = logits.flatten(0, -2).log_softmax(-1)  # N V
    token = target.flatten()  # N
    target_loss = -log_probabilities.gather(1, token[:, None])[:, 0]
    uniform_loss = -log_probabilities.mean(-1)
    return ((1 - smoothing) * target_loss + smoothing * uniform_loss)[token_mask(token)].sum()


def cross_entropy_objective(label_smoothing: float) -> Objective:
    """Return the objective of section 5.4: the cross-entropy of the next target token, smoothed."""

    def objective(model: Transducer, batch: TensorBatch) -> LossSums:
        hidden = model.hidden_states(batch.prefix, model.encode(batch.source))
        return LossSums(
            *projected_cross_entropy(hidden, model.output_weight, batch.target, label_smoothing, bias=model.output_bias)
        )

    return objective


def joint_objective(label_smoothing: float, ctc_weight: float) -> Objective:
    """Return the objective of section 5.4 mixed with that of CTC on the encoder's output (arXiv 1609.06773).

    On little data, attention alone does not find out that a signal is read from its beginning to its end; CTC, which
    can read it no other way, shows it.
    """
    cross_entropy = cross_entropy_objective(label_smoothing)
    if not ctc_weight:
        return cross_entropy

    def objective(model: Transducer, batch: TensorBatch) -> LossSums:
        assert isinstance(model, Transformer), f"{type(model).__name__} has no CTC output"
        memory = model.encode(batch.source)
        hidden = model.hidden_states(batch.prefix, memory)
        loss, nll = projected_cross_entropy(
            hidden, model.output_weight, batch.target, label_smoothing, bias=model.output_bias
        )
        return LossSums((1 - ctc_weight) * loss + ctc_weight * ctc_loss(model, memory, batch.target), nll)

    return objective


def ctc_loss(model: Transformer, memory: Memory, target: Tensor) -> Tensor:
    """Return the CTC loss (Graves et al. 2006) of targets (B T), summed; those longer than their source count nothing.

    PAD is the blank. The END of a target is not heard, so it is left out.
    """
    log_probabilities = model.ctc_log_probabilities(memory).transpose(0, 1)  # S B V
    return F.ctc_loss(
        log_probabilities, target, memory.mask.sum(dim=1), token_mask(target).sum(dim=1) - 1,
        blank=PAD, reduction="sum", zero_infinity=True,
    )  # fmt: skip


def projected_cross_entropy(
    hidden: Tensor,  # B T D
    output: Tensor,  # V D
    target: Tensor,  # B T, padded with PAD
    smoothing: float,
    *,
    bias: Tensor | None = None,  # V
) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss of hidden @ outputᵀ + bias, and the loss without smoothing, as sums."""
    mask = token_mask(target)
    fused: Any = ProjectedCrossEntropy.apply
    full = torch.promote_types(hidden.dtype, output.dtype)  # a sum in half precision has three digits
    rows = hidden[mask].to(full)
    if bias is not None:  # one more input that is always 1
        rows, output = F.pad(rows, (0, 1), value=1.0), torch.cat([output, bias[:, None]], dim=1)
    loss, nll = fused(rows, output, target[mask], smoothing)
    return loss, nll


def cross_entropy_with_gradient_(logits: Tensor, target: Tensor, smoothing: float) -> tuple[float, float]:
    """Replace logits (N V) in place by the gradient of their smoothed loss; return the loss, smoothed and not smoothed.

    The gradient of cross-entropy with respect to the logits is the probabilities minus the target.
    """
    if native.is_supported(logits):
        return native.cross_entropy(logits, target, smoothing)
    highest = logits.amax(-1, keepdim=True)
    target_logit = logits.gather(1, target[:, None])
    mean = logits.mean(-1, keepdim=True)
    total = logits.sub_(highest).exp_().sum(-1, keepdim=True)
    logits.div_(total).sub_(smoothing / logits.shape[1])
    logits.scatter_add_(1, target[:, None], torch.full_like(target_logit, smoothing - 1))
    log_total = total.log() + highest
    smoothed = (log_total - (1 - smoothing) * target_logit - smoothing * mean).sum(dtype=torch.float64)
    return smoothed.item(), (log_total - target_logit).sum(dtype=torch.float64).item()


class ProjectedCrossEntropy(Function):
    """Computes the gradients together with the loss, in the forward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, output: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Return the loss, and save both gradients."""
        needs_gradient = any(ctx.needs_input_grad[:2])
        hidden_gradient, output_gradient = torch.empty_like(hidden), torch.zeros_like(output)
        loss = nll = 0.0
        chunk = max(1, CHUNK_LOGITS // len(output))
        for rows in (slice(start, start + chunk) for start in range(0, len(hidden), chunk)):
            products = F.linear(hidden[rows], output)  # N V, in bfloat16 under autocast
            logits = products.to(torch.promote_types(products.dtype, torch.float32))
            chunk_loss, chunk_nll = cross_entropy_with_gradient_(logits, target[rows], smoothing)
            loss, nll = loss + chunk_loss, nll + chunk_nll
            if needs_gradient:
                gradient = logits.to(products.dtype)
                hidden_gradient[rows] = gradient @ output.to(products.dtype)
                _add_matmul_(output_gradient, gradient.T, hidden[rows].to(products.dtype))
        ctx.save_for_backward(hidden_gradient, output_gradient)
        loss_sum, nll_sum = hidden.new_tensor(loss), hidden.new_tensor(nll)
        ctx.mark_non_differentiable(nll_sum)
        return loss_sum, nll_sum

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale the saved gradients."""
        hidden_gradient, output_gradient = ctx.saved_tensors
        return hidden_gradient * upstream[0], output_gradient * upstream[0], None, None


def _add_matmul_(total: Tensor, a: Tensor, b: Tensor) -> None:
    # The total may have a higher precision.
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
