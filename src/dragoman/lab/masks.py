"""Section 3.2.3: what the mask of the decoder is for, shown by breaking it.

The broken masks live here and nowhere else. Each is a part handed to an ordinary Transformer, which is trained by the
ordinary loop; decoding, where nothing comes after the last piece, is the same for all of them.
"""

import math
import time
from collections.abc import Callable
from typing import cast

from torch import Tensor

from dragoman.errors import TrainingDiverged
from dragoman.evaluation.scores import corpus_bleu
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.plots import COLOURS, draw_lines, label_axes, save_figure, subplots
from dragoman.lab.report import ExperimentReport, Json, Picture, ReportTable
from dragoman.lab.seeds import training_seconds
from dragoman.models.attention import MultiHeadAttention, scaled_dot_product
from dragoman.models.transformer import DecoderLayer, Transformer
from dragoman.storage import make_directory
from dragoman.training.events import ignore_event
from dragoman.training.loop import build_adam
from dragoman.training.metrics_log import running_mean
from dragoman.training.prepare import open_corpora, prepare_data
from dragoman.training.trainer import Trainer

TITLE = "Section 3.2.3: what the mask is for"
QUESTION = "What goes wrong without the causal mask, and with zeros instead of −∞?"
CLAIM = (
    "Section 3.2.3: no place of the decoder may see what comes after it; the scores of all such connections are set to "
    "−∞ before the softmax. What happens otherwise is not said."
)

_TRANSLATED_SENTENCES = 200  # test sentences, at most

_MaskedSoftmax = Callable[[Tensor, Tensor], Tensor]  # scores B H T T and the causal mask to weights


def mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Mask as the paper does: what comes later has the score −∞, and no weight."""
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1)


def _ignore_mask(scores: Tensor, _mask: Tensor) -> Tensor:
    """Forget the mask: every place sees the answer it has to give."""
    return scores.softmax(dim=-1)


def zero_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Multiply the scores by the mask: what comes later has the score 0, which still weighs e⁰."""
    return (scores * mask).softmax(dim=-1)


def zero_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Multiply the weights by the mask: what comes later has no weight, but has had its part in the sum of them."""
    return scores.softmax(dim=-1) * mask


MASKS: dict[str, _MaskedSoftmax] = {
    "−∞, as in the paper": mask_scores,
    "no mask": _ignore_mask,
    "scores set to zero": zero_scores,
    "weights set to zero": zero_weights,
}
_PAPER = "−∞, as in the paper"


class _CustomMaskAttention(MultiHeadAttention):
    """A self-attention that weighs the places of a whole sequence in a way of its own."""

    def __init__(self, attention: MultiHeadAttention, masked_softmax: _MaskedSoftmax) -> None:
        key_width, value_width = (part.out_features // attention.heads for part in (attention.key, attention.value))
        super().__init__(attention.query.in_features, attention.heads, key_width, value_width)
        self.load_state_dict(attention.state_dict())
        self.masked_softmax = masked_softmax

    def attend_projected(
        self, looking: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Look at projected keys and values (B H S K)."""
        assert mask is not None, "the decoder has a causal mask"
        weights = self.masked_softmax(scaled_dot_product(self.split_heads(self.query(looking)), key), mask)
        return self.output((weights @ value).transpose(1, 2).flatten(2)), weights if record else None  # B T D


def replace_decoder_masks(masked_softmax: _MaskedSoftmax, model: Transformer) -> None:
    """Let every decoder layer mask its self-attention in this way."""
    for layer, attention in zip(model.decoder, _decoder_self_attention(model), strict=True):
        layer.attention = _CustomMaskAttention(attention, masked_softmax)


def _decoder_self_attention(model: Transformer) -> list[MultiHeadAttention]:
    """Return the self-attention of every decoder layer."""
    return [cast(DecoderLayer, layer).attention for layer in model.decoder]


# One training


def run(lab: Laboratory) -> ExperimentReport:
    """Train with each mask for the same time, then see what each model does without its teacher."""
    seconds = training_seconds(lab.budget_seconds / len(MASKS))
    found = {
        name: lab.measure_once(
            weigh.__name__,
            lambda weigh=weigh: _train_with_mask(lab, weigh, seconds),  # type: ignore[misc]
            seconds=seconds,
        )
        for name, weigh in MASKS.items()
    }
    parts = (_explanation(seconds), _table(found), _draw(lab, found), _sample_table(found))
    return ExperimentReport(_findings(found), parts, {"masks": found, "seconds_each": seconds})


def _train_with_mask(lab: Laboratory, masked_softmax: _MaskedSoftmax, seconds: float) -> Json:
    """Train a model with one kind of mask and measure it."""
    trainer = _build_trainer(lab, masked_softmax, seconds)
    curve = _train_for(trainer, seconds)
    model = cast(Transformer, trainer.model)
    pairs = lab.corpus.pairs("test")[:_TRANSLATED_SENTENCES]
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    seen = trainer.validation_loss()
    for attention in _decoder_self_attention(model):
        cast(_CustomMaskAttention, attention).masked_softmax = mask_scores
    honest = trainer.validation_loss()
    outputs = {way: trainer.translator.translate(sources, beam=beam) for way, beam in (("greedy", 1), ("beam", 4))}
    return {
        "curve": curve,
        "validation loss as trained": seen,
        "validation loss from the past alone": honest,
        **{f"bleu {way}": corpus_bleu(output, references) for way, output in outputs.items()},
        "samples": [list(row) for row in list(zip(sources, references, outputs["beam"], strict=True))[:3]],
    }


def _build_trainer(lab: Laboratory, masked_softmax: _MaskedSoftmax, seconds: float) -> Trainer:
    """Return all that a training needs, around a model with this kind of mask."""
    run = lab.model_run("masks")
    make_directory(run.folder)
    recipe = lab.build_recipe(run, {}, seconds, lab.seed, lab.corpus)
    data = prepare_data(
        run, recipe, *open_corpora(recipe), ignore_event
    )  # the vocabulary is learned once for all masks
    trainer = Trainer(run, recipe, data, stop=lab.stop)
    replace_decoder_masks(masked_softmax, cast(Transformer, trainer.model))
    trainer.optimizer = build_adam(trainer.model, recipe.training)
    return trainer


def _train_for(trainer: Trainer, seconds: float) -> list[tuple[int, float]]:
    """Train for so long; return the loss per piece, without smoothing, at each step."""
    curve: list[tuple[int, float]] = []
    until = time.monotonic() + seconds
    try:
        for step in trainer.steps():
            curve.append((step.number, step.nll))
            if time.monotonic() > until:
                break
    except TrainingDiverged:
        pass
    return curve


# What is shown


def _explanation(seconds: float) -> str:
    """Say what was done."""
    return (
        f"Four Transformers that differ in nothing but the mask of the decoder’s self-attention, {seconds:.0f} seconds "
        "of training each. In training a decoder reads the whole translation at once, and only the mask keeps it from "
        "reading the piece that it has to predict. In translating there is nothing ahead to be read yet."
    )


def _table(found: dict[str, Json]) -> ReportTable:
    """Return losses and BLEU of each mask."""
    rows = tuple(
        (name, len(row["curve"]), _final_loss(row), row["validation loss as trained"],
         row["validation loss from the past alone"], f"{row['bleu greedy']:.1f}", f"{row['bleu beam']:.1f}")
        for name, row in found.items()
    )  # fmt: skip
    header = (
        "mask", "steps", "training loss", "validation loss, same mask", "validation loss, from the past alone",
        "BLEU greedy", "BLEU beam 4",
    )  # fmt: skip
    note = "Losses in nats per piece. “From the past alone”: the same weights, with the paper’s mask put in."
    return ReportTable("What is learned with each mask", header, rows, note)


def _final_loss(row: Json) -> float:
    """Return the mean training loss of the last tenth of the steps."""
    losses = [loss for _, loss in row["curve"]]
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail) if tail else math.nan


def _draw(lab: Laboratory, found: dict[str, Json]) -> Picture:
    """Draw the training losses, and BLEU beside them."""
    figure, (curves, bars) = subplots(2, height=3.8)
    lines = {}
    for name, row in found.items():
        steps, losses = zip(*row["curve"], strict=True) if row["curve"] else ((), ())
        lines[name] = steps, running_mean(losses)
    draw_lines(curves, lines, title="with the teacher", x_label="step", y_label="training loss, nats", markers=False)
    curves.set_yscale("log")
    drawn = bars.barh(list(found), [row["bleu beam"] for row in found.values()], color=COLOURS[: len(found)])
    bars.bar_label(drawn, fmt="%.1f", fontsize=8, padding=2)
    bars.margins(x=0.12)
    bars.invert_yaxis()
    label_axes(bars, title="without the teacher", x_label="BLEU of translations (beam 4)", y_label="")
    file = save_figure(figure, lab.folder / "masks.png")
    return Picture(file, "Training loss with each mask (left), and what the trained models translate (right).")


def _sample_table(found: dict[str, Json]) -> ReportTable:
    """Return how each model translates one sentence."""
    source, reference, _ = found[_PAPER]["samples"][0]
    rows = (
        ("source", source),
        ("reference", reference),
        *((name, _shorten_sample(row)) for name, row in found.items()),
    )
    return ReportTable("One sentence", ("", "text"), rows)


def _shorten_sample(row: Json) -> str:
    """Return a translation, cut to a readable length."""
    text: str = row["samples"][0][2]
    return text if len(text) <= 120 else text[:119] + "…"


def _findings(found: dict[str, Json]) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    paper = found[_PAPER]
    return (
        f"With the paper’s mask the training loss ends at {_final_loss(paper):.3f} nats a piece, and the translations "
        f"have BLEU {paper['bleu beam']:.1f} (greedy {paper['bleu greedy']:.1f}).",
        *(_mask_finding(name, found[name], paper) for name in found if name != _PAPER),
        _summary_finding(found),
    )


def _mask_finding(name: str, row: Json, paper: Json) -> str:
    """Say what came of a broken mask, beside the paper's."""
    past = "validation loss from the past alone"
    return (
        f"{name[0].upper()}{name[1:]}: the training loss ends at {_final_loss(row):.3f} "
        f"({_final_loss(paper):.3f} with the "
        f"paper’s mask), the validation loss from the past alone at {row[past]:.3f} ({paper[past]:.3f}), and BLEU is "
        f"{row['bleu beam']:.1f} ({paper['bleu beam']:.1f})."
    )


def _summary_finding(found: dict[str, Json]) -> str:
    """Say whether a lower loss is worth anything."""
    paper = found[_PAPER]
    lower = [name for name in found if _final_loss(found[name]) < _final_loss(paper)]
    worse = [name for name in lower if found[name]["bleu beam"] < paper["bleu beam"]]
    return (
        f"Of {len(found) - 1} broken masks, {len(lower)} reached a lower training loss than the paper’s, and "
        f"{len(worse)} of these translate worse. One training of each; how much chance there is in it is not known."
    )
