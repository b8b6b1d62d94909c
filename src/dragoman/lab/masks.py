"""Section 3.2.3: the purpose of the decoder's causal mask, shown by training with wrong masks.

The wrong masks exist only here. Each replaces the self-attention of an ordinary Transformer, which is trained by the
ordinary loop. Decoding is the same for all, since no token follows the last one.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

from torch import Tensor

from dragoman.errors import TrainingDiverged
from dragoman.evaluation.scores import corpus_bleu
from dragoman.lab.comparison import TrainedComparison, announce_plan, unigram_loss
from dragoman.lab.laboratory import Laboratory, prepare_run
from dragoman.lab.plan import Comparison
from dragoman.lab.plots import COLOURS, draw_lines, label_axes, save_picture, subplots
from dragoman.models.attention import MultiHeadAttention, scaled_dot_product
from dragoman.models.transformer import DecoderLayer, Transformer
from dragoman.recipe import Recipe
from dragoman.report import ExperimentReport, Json, ReportPicture, ReportTable
from dragoman.run import Run
from dragoman.tasks.events import ProgressUpdate
from dragoman.training.loop import build_adam
from dragoman.training.metrics_log import running_mean
from dragoman.training.trainer import Trainer

TITLE = "Section 3.2.3: the causal mask"
QUESTION = "What goes wrong without the causal mask, and with zeros instead of −∞?"
CLAIM = (
    "section 3.2.3: a position of the decoder must not attend to later positions; the scores of all such connections "
    "are set to −∞ before the softmax. The paper reports no other choice."
)

_TRANSLATED_SENTENCES = 200  # test sentences, at most

_MaskedSoftmax = Callable[[Tensor, Tensor], Tensor]  # scores B H T T and the causal mask to weights


def mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Mask as in the paper: later positions have the score −∞ and no weight."""
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1)


def _ignore_mask(scores: Tensor, _mask: Tensor) -> Tensor:
    """Attend to all positions, including the token to predict."""
    return scores.softmax(dim=-1)


def zero_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Multiply scores by the mask: later positions have the score 0 and so a weight proportional to e⁰."""
    return (scores * mask).softmax(dim=-1)


def zero_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Multiply weights by the mask: later positions have no weight, but contribute to the softmax denominator."""
    return scores.softmax(dim=-1) * mask


_PAPER = "−∞, as in the paper"
MASKS: dict[str, _MaskedSoftmax] = {
    _PAPER: mask_scores,
    "no mask": _ignore_mask,
    "scores set to zero": zero_scores,
    "weights set to zero": zero_weights,
}
_COMPARISON = Comparison(
    {name: {} for name in MASKS},
    equal="steps",
    max_seeds=1,
    optional=(("weights set to zero",), ("scores set to zero",)),
)


class _CustomMaskAttention(MultiHeadAttention):
    """Self-attention with another masked softmax over whole sequences."""

    def __init__(self, attention: MultiHeadAttention, masked_softmax: _MaskedSoftmax) -> None:
        key_width, value_width = (part.out_features // attention.heads for part in (attention.key, attention.value))
        super().__init__(attention.query.in_features, attention.heads, key_width, value_width)
        self.load_state_dict(attention.state_dict())
        self.masked_softmax = masked_softmax

    def attend_projected(
        self, query_source: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to projected keys and values (B H S K)."""
        assert mask is not None, "the decoder has a causal mask"
        weights = self.masked_softmax(scaled_dot_product(self.split_heads(self.query(query_source)), key), mask)
        return self.output((weights @ value).transpose(1, 2).flatten(2)), weights if record else None  # B T D


def replace_decoder_masks(masked_softmax: _MaskedSoftmax, model: Transformer) -> None:
    """Use a masked softmax in the self-attention of every decoder layer."""
    for layer, attention in zip(model.decoder, _decoder_self_attention(model), strict=True):
        layer.attention = _CustomMaskAttention(attention, masked_softmax)


def _decoder_self_attention(model: Transformer) -> list[MultiHeadAttention]:
    return [cast(DecoderLayer, layer).attention for layer in model.decoder]


# Training


def run(lab: Laboratory) -> ExperimentReport:
    """Train with each mask, then translate with each model."""
    plan = announce_plan(lab, _COMPARISON)
    recipe = lab.build_recipe("masks", plan.settings(_PAPER))
    results = {
        name: lab.measure_once(
            MASKS[name].__name__,
            partial(_train_with_mask, lab, recipe, MASKS[name], f"{name} (model {number} of {plan.models})"),
            steps=plan.steps[name],
        )
        for number, name in enumerate(plan.variants, start=1)
    }
    unigram = lab.measure_once("unigram loss", lambda: unigram_loss(recipe, lab.corpus))
    # The model with the paper's mask is the control: with a wrong mask, a low loss does not mean that it has learned.
    loss, steps = results[_PAPER]["validation loss, same mask"], len(results[_PAPER]["curve"])
    control = TrainedComparison(plan, {_PAPER: [loss]}, {_PAPER: steps}, unigram)
    if not control.learned:
        return control.refusal(masks=results)
    parts = (_EXPLANATION, *control.parts(), _table(results), _draw(lab, results), _sample_table(results))
    return ExperimentReport(_findings(results), parts, {"masks": results, "comparison": control.results()})


def _train_with_mask(lab: Laboratory, recipe: Recipe, masked_softmax: _MaskedSoftmax, label: str) -> Json:
    trainer = _build_trainer(lab, recipe, masked_softmax)
    curve = []
    with suppress(TrainingDiverged):
        for step in trainer.steps():
            curve.append((step.number, step.nll))  # without label smoothing
            lab.on_event(ProgressUpdate(f"masks: training {label}, step", step.number, recipe.training.steps))
    pairs = lab.corpus.pairs("test")[:_TRANSLATED_SENTENCES]
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    same_mask = trainer.validation_loss()
    for attention in _decoder_self_attention(cast(Transformer, trainer.model)):
        cast(_CustomMaskAttention, attention).masked_softmax = mask_scores
    causal_mask = trainer.validation_loss()
    outputs = {name: trainer.sequence_model.predict(sources, beam=beam) for name, beam in (("greedy", 1), ("beam", 4))}
    return {
        "curve": curve,
        "validation loss, same mask": same_mask,
        "validation loss, causal mask": causal_mask,
        **{f"bleu {name}": corpus_bleu(output, references) for name, output in outputs.items()},
        "samples": [list(row) for row in list(zip(sources, references, outputs["beam"], strict=True))[:3]],
    }


def _build_trainer(lab: Laboratory, recipe: Recipe, masked_softmax: _MaskedSoftmax) -> Trainer:
    data = prepare_run(recipe)  # the vocabulary is shared by all masks
    trainer = Trainer(Run(recipe.run), recipe, data, stop=lab.stop)
    replace_decoder_masks(masked_softmax, cast(Transformer, trainer.model))
    trainer.optimizer = build_adam(trainer.model, recipe.training)
    return trainer


# Report

_EXPLANATION = (
    "The models differ only in the mask of the decoder’s self-attention. In training, the decoder reads the whole "
    "target at once, and only the mask prevents it from reading the token that it has to predict. In translation there "
    "are no later tokens to read."
)


def _table(results: dict[str, Json]) -> ReportTable:
    rows = tuple(
        (name, len(row["curve"]), _final_loss(row), row["validation loss, same mask"],
         row["validation loss, causal mask"], f"{row['bleu greedy']:.1f}", f"{row['bleu beam']:.1f}")
        for name, row in results.items()
    )  # fmt: skip
    header = (
        "mask", "steps", "training loss", "validation loss, same mask", "validation loss, causal mask", "BLEU greedy",
        "BLEU beam 4",
    )  # fmt: skip
    note = "Losses in nats per token. “Causal mask”: the same weights, evaluated with the paper’s mask."
    return ReportTable("Losses and BLEU by mask", header, rows, note)


def _final_loss(row: Json) -> float:
    """Return the mean training loss of the last tenth of the steps."""
    losses = [loss for _, loss in row["curve"]]
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail) if tail else math.nan


def _draw(lab: Laboratory, results: dict[str, Json]) -> ReportPicture:
    figure, (curves, bars) = subplots(2, height=3.8)
    curve = {name: tuple(zip(*row["curve"], strict=True)) or ((), ()) for name, row in results.items()}
    lines = {name: (steps, running_mean(losses)) for name, (steps, losses) in curve.items()}
    draw_lines(curves, lines, title="training", x_label="step", y_label="training loss, nats", markers=False)
    curves.set_yscale("log")
    container = bars.barh(list(results), [row["bleu beam"] for row in results.values()], color=COLOURS[: len(results)])
    bars.bar_label(container, fmt="%.1f", fontsize=8, padding=2)
    bars.margins(x=0.12)
    bars.invert_yaxis()
    label_axes(bars, title="translation", x_label="BLEU (beam 4)")
    caption = "Training loss with each mask (left) and BLEU of the trained models (right)."
    return save_picture(figure, lab.folder / "masks.png", caption)


def _sample_table(results: dict[str, Json]) -> ReportTable:
    source, reference, _ = results[_PAPER]["samples"][0]
    rows = [("source", source), ("reference", reference)]
    for name, row in results.items():
        text = row["samples"][0][2]
        rows.append((name, text[:120] + "…" * (len(text) > 120)))
    return ReportTable("A sample", ("", "text"), rows)


def _findings(results: dict[str, Json]) -> tuple[str, ...]:
    paper, causal = results[_PAPER], "validation loss, causal mask"
    others = {name: row for name, row in results.items() if name != _PAPER}
    lower = [row for row in others.values() if _final_loss(row) < _final_loss(paper)]
    worse = [row for row in lower if row["bleu beam"] < paper["bleu beam"]]
    return (
        f"With the paper’s mask, the final training loss is {_final_loss(paper):.3f} nats per token and the BLEU is "
        f"{paper['bleu beam']:.1f} (greedy {paper['bleu greedy']:.1f}).",
        *(
            f"{name[0].upper()}{name[1:]}: the final training loss is {_final_loss(row):.3f} ({_final_loss(paper):.3f} "
            f"with the paper’s mask), the validation loss with the causal mask {row[causal]:.3f} "
            f"({paper[causal]:.3f}), and BLEU {row['bleu beam']:.1f} ({paper['bleu beam']:.1f})."
            for name, row in others.items()
        ),
        f"Of the {len(others)} other masks, {len(lower)} reached a lower training loss than the paper’s; {len(worse)} "
        "of these have a lower BLEU. Each mask was trained once, so differences may be due to chance.",
    )
