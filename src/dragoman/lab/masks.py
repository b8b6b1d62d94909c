"""Section 3.2.3: what the mask of the decoder is for, shown by breaking it.

The broken masks live here and nowhere else. Each is a part handed to an ordinary Transformer, which is trained by the
ordinary loop; decoding, where nothing comes after the last piece, is the same for all of them.
"""

import math
import time
from collections.abc import Callable
from typing import cast

from torch import Tensor

from dragoman.errors import Diverged
from dragoman.evaluation.scores import bleu
from dragoman.lab.drawing import COLOURS, draw_lines, label, panels, save
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.repeats import training_seconds
from dragoman.lab.report import Json, Picture, Report, Table
from dragoman.model.attention import MultiHeadAttention, scaled_dot
from dragoman.model.transformer import DecoderLayer, Transformer
from dragoman.run import make_folder
from dragoman.tasks.preparation import corpora, prepared
from dragoman.tasks.train import Trainer, ignore
from dragoman.training.distributed import ALONE
from dragoman.training.journal import running_mean
from dragoman.training.loop import adam, train

TITLE = "Section 3.2.3: what the mask is for"
QUESTION = "What goes wrong without the causal mask, and with zeros instead of −∞?"
CLAIM = (
    "Section 3.2.3: no place of the decoder may see what comes after it; the scores of all such connections are set to "
    "−∞ before the softmax. What happens otherwise is not said."
)

TRANSLATED = 200  # test sentences, at most

Weigh = Callable[[Tensor, Tensor], Tensor]  # scores B H T T and the causal mask to weights


def forbidden(scores: Tensor, mask: Tensor) -> Tensor:
    """Mask as the paper does: what comes later has the score −∞, and no weight."""
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1)


def unmasked(scores: Tensor, _mask: Tensor) -> Tensor:
    """Forget the mask: every place sees the answer it has to give."""
    return scores.softmax(dim=-1)


def zeroed_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Multiply the scores by the mask: what comes later has the score 0, which still weighs e⁰."""
    return (scores * mask).softmax(dim=-1)


def zeroed_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Multiply the weights by the mask: what comes later has no weight, but has had its part in the sum of them."""
    return scores.softmax(dim=-1) * mask


MASKS: dict[str, Weigh] = {
    "−∞, as in the paper": forbidden,
    "no mask": unmasked,
    "scores set to zero": zeroed_scores,
    "weights set to zero": zeroed_weights,
}
PAPER = "−∞, as in the paper"


class OtherwiseMasked(MultiHeadAttention):
    """A self-attention that weighs the places of a whole sequence in a way of its own."""

    def __init__(self, ordinary: MultiHeadAttention, weigh: Weigh) -> None:
        key_width, value_width = (part.out_features // ordinary.heads for part in (ordinary.key, ordinary.value))
        super().__init__(ordinary.query.in_features, ordinary.heads, key_width, value_width)
        self.load_state_dict(ordinary.state_dict())
        self.weigh = weigh

    def look(
        self, looking: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Look at projected keys and values (B H S K)."""
        assert mask is not None, "the decoder has a causal mask"
        weights = self.weigh(scaled_dot(self.split(self.query(looking)), key), mask)
        return self.output((weights @ value).transpose(1, 2).flatten(2)), weights if record else None  # B T D


def use(weigh: Weigh, model: Transformer) -> None:
    """Let every decoder layer mask its self-attention in this way."""
    for layer, attention in zip(model.decoder, decoder_attention(model), strict=True):
        layer.attention = OtherwiseMasked(attention, weigh)


def decoder_attention(model: Transformer) -> list[MultiHeadAttention]:
    """Return the self-attention of every decoder layer."""
    return [cast(DecoderLayer, layer).attention for layer in model.decoder]


# One training


def run(lab: Laboratory) -> Report:
    """Train with each mask for the same time, then see what each model does without its teacher."""
    seconds = training_seconds(lab.budget_seconds / len(MASKS))
    found = {
        name: lab.kept(weigh.__name__, lambda weigh=weigh: trial(lab, weigh, seconds), seconds=seconds)  # type: ignore[misc]
        for name, weigh in MASKS.items()
    }
    parts = (explanation(seconds), table(found), draw(lab, found), samples(found))
    return Report(findings(found), parts, {"masks": found, "seconds_each": seconds})


def trial(lab: Laboratory, weigh: Weigh, seconds: float) -> Json:
    """Train a model with one kind of mask and measure it."""
    trainer = trainer_with(lab, weigh, seconds)
    curve = taught(trainer, seconds)
    model = cast(Transformer, trainer.model)
    pairs = lab.material.pairs("test")[:TRANSLATED]
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    seen = trainer.validation_loss()
    for attention in decoder_attention(model):
        cast(OtherwiseMasked, attention).weigh = forbidden
    honest = trainer.validation_loss()
    outputs = {way: trainer.translator.translate(sources, beam=beam) for way, beam in (("greedy", 1), ("beam", 4))}
    return {
        "curve": curve,
        "validation loss as trained": seen,
        "validation loss from the past alone": honest,
        **{f"bleu {way}": bleu(output, references) for way, output in outputs.items()},
        "samples": [list(row) for row in list(zip(sources, references, outputs["beam"], strict=True))[:3]],
    }


def trainer_with(lab: Laboratory, weigh: Weigh, seconds: float) -> Trainer:
    """Return all that a training needs, around a model with this kind of mask."""
    run = lab.place("masks")
    make_folder(run.folder)
    recipe = lab.recipe(run, {}, seconds, lab.seed, lab.material)
    data = prepared(run, recipe, *corpora(recipe), ignore)  # the vocabulary is learned once for all masks
    trainer = Trainer(run, recipe, data, ALONE, ignore, lab.stop)
    use(weigh, cast(Transformer, trainer.model))
    trainer.optimizer = adam(trainer.model, recipe.training)
    return trainer


def taught(trainer: Trainer, seconds: float) -> list[tuple[int, float]]:
    """Train for so long; return the loss per piece, without smoothing, at each step."""
    plan, width = trainer.recipe.training, trainer.recipe.model.width
    curve: list[tuple[int, float]] = []
    until = time.monotonic() + seconds
    try:
        for step in train(trainer.model, trainer.optimizer, trainer.batches, plan, width=width, crew=trainer.crew):
            curve.append((step.number, step.nll))
            if time.monotonic() > until:
                break
    except Diverged:
        pass
    return curve


# What is shown


def explanation(seconds: float) -> str:
    """Say what was done."""
    return (
        f"Four Transformers that differ in nothing but the mask of the decoder’s self-attention, {seconds:.0f} seconds "
        "of training each. In training a decoder reads the whole translation at once, and only the mask keeps it from "
        "reading the piece that it has to predict. In translating there is nothing ahead to be read yet."
    )


def table(found: dict[str, Json]) -> Table:
    """Return losses and BLEU of each mask."""
    rows = tuple(
        (name, len(row["curve"]), last_loss(row), row["validation loss as trained"],
         row["validation loss from the past alone"], f"{row['bleu greedy']:.1f}", f"{row['bleu beam']:.1f}")
        for name, row in found.items()
    )  # fmt: skip
    header = (
        "mask", "steps", "training loss", "validation loss, same mask", "validation loss, from the past alone",
        "BLEU greedy", "BLEU beam 4",
    )  # fmt: skip
    note = "Losses in nats per piece. “From the past alone”: the same weights, with the paper’s mask put in."
    return Table("What is learned with each mask", header, rows, note)


def last_loss(row: Json) -> float:
    """Return the mean training loss of the last tenth of the steps."""
    losses = [loss for _, loss in row["curve"]]
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail) if tail else math.nan


def draw(lab: Laboratory, found: dict[str, Json]) -> Picture:
    """Draw the training losses, and BLEU beside them."""
    figure, (curves, bars) = panels(2, height=3.8)
    lines = {}
    for name, row in found.items():
        steps, losses = zip(*row["curve"], strict=True) if row["curve"] else ((), ())
        lines[name] = steps, running_mean(losses)
    draw_lines(curves, lines, title="with the teacher", across="step", up="training loss, nats", markers=False)
    curves.set_yscale("log")
    drawn = bars.barh(list(found), [row["bleu beam"] for row in found.values()], color=COLOURS[: len(found)])
    bars.bar_label(drawn, fmt="%.1f", fontsize=8, padding=2)
    bars.margins(x=0.12)
    bars.invert_yaxis()
    label(bars, title="without the teacher", across="BLEU of translations (beam 4)", up="")
    file = save(figure, lab.folder / "masks.png")
    return Picture(file, "Training loss with each mask (left), and what the trained models translate (right).")


def samples(found: dict[str, Json]) -> Table:
    """Return how each model translates one sentence."""
    source, reference, _ = found[PAPER]["samples"][0]
    rows = (("source", source), ("reference", reference), *((name, shown(row)) for name, row in found.items()))
    return Table("One sentence", ("", "text"), rows)


def shown(row: Json) -> str:
    """Return a translation, cut to a readable length."""
    text: str = row["samples"][0][2]
    return text if len(text) <= 120 else text[:119] + "…"


def findings(found: dict[str, Json]) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    paper = found[PAPER]
    return (
        f"With the paper’s mask the training loss ends at {last_loss(paper):.3f} nats a piece, and the translations "
        f"have BLEU {paper['bleu beam']:.1f} (greedy {paper['bleu greedy']:.1f}).",
        *(finding(name, found[name], paper) for name in found if name != PAPER),
        verdict(found),
    )


def finding(name: str, row: Json, paper: Json) -> str:
    """Say what came of a broken mask, beside the paper's."""
    past = "validation loss from the past alone"
    return (
        f"{name[0].upper()}{name[1:]}: the training loss ends at {last_loss(row):.3f} ({last_loss(paper):.3f} with the "
        f"paper’s mask), the validation loss from the past alone at {row[past]:.3f} ({paper[past]:.3f}), and BLEU is "
        f"{row['bleu beam']:.1f} ({paper['bleu beam']:.1f})."
    )


def verdict(found: dict[str, Json]) -> str:
    """Say whether a lower loss is worth anything."""
    paper = found[PAPER]
    lower = [name for name in found if last_loss(found[name]) < last_loss(paper)]
    worse = [name for name in lower if found[name]["bleu beam"] < paper["bleu beam"]]
    return (
        f"Of {len(found) - 1} broken masks, {len(lower)} reached a lower training loss than the paper’s, and "
        f"{len(worse)} of these translate worse. One training of each; how much chance there is in it is not known."
    )
