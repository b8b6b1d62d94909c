"""The head report: what every head of a model does on the validation text, and what the model loses without it.

`viewer/statistics.py` says what is measured of the weights. Importance is the loss that a head spares (Michel et al.
2019, arXiv 1905.10650): the validation loss of the model in which the head has no effect, minus that of the model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import category

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.data.arrays import TokenPairs
from dragoman.data.batches import Batch, Order, collate
from dragoman.data.corpus import Corpus, Pairs
from dragoman.data.split import Part
from dragoman.errors import UserError
from dragoman.model.knockout import Head, has_heads, without
from dragoman.model.transducer import Memory, Network
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.events import Listen, Working
from dragoman.tasks.head_cache import FORMAT, Report, cached_report, chosen_weights, write_report
from dragoman.tasks.look import attention_sizes
from dragoman.tasks.tasks import task_of
from dragoman.tasks.translator import Translator, load
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, START
from dragoman.training.checkpoints import whole
from dragoman.training.loss import projected_cross_entropy
from dragoman.viewer.links import likely_links
from dragoman.viewer.record import KINDS, Kind
from dragoman.viewer.statistics import THRESHOLDS, Flags, Reading, Statistics

SENTENCES = 1000  # of the validation text, at most
BATCH_TOKENS = 4096  # every weight of every head of a batch stands in memory


def head_report(
    run: Run,
    listen: Listen,
    *,
    checkpoint: int | None = None,
    corpus: Corpus | None = None,
    sentences: int = SENTENCES,
    importance: bool = True,
) -> Report:
    """Return the report of the run's model, or of one of its checkpoints: the kept one if it still holds."""
    translator = load(run, checkpoint=checkpoint)
    refuse_headless(run, translator)
    refuse_plain_text(run, translator, corpus)
    importance = importance and has_heads(translator.model)  # else none can be switched off
    text = Text.of(translator, pairs_to_measure(run, translator, corpus), sentences)
    name, weights = chosen_weights(run, checkpoint)
    kept = cached_report(run, checkpoint)
    if kept and kept["data"]["fingerprint"] == text.fingerprint and not (importance and "importance" not in kept):
        return kept
    found = measured(translator, text, importance, listen)
    where = str(corpus or validation_corpus(run, translator.recipe)[0])
    report: Report = {
        "format": FORMAT,
        "step": int(name) if name.isdecimal() else None,
        "weights": weights,
        "data": {"name": where, "fingerprint": text.fingerprint, "sentences": text.count},
        "thresholds": THRESHOLDS,
        **found,
    }
    write_report(run, name, report)
    return report


def refuse_headless(run: Run, translator: Translator) -> None:
    """Object to a model that attends to nothing."""
    if not attention_sizes(translator.model, translator.device):
        named = translator.recipe.model.architecture
        raise UserError(f'{run} has no attention to measure: its architecture, "{named}", looks nowhere.')


def refuse_plain_text(run: Run, translator: Translator, corpus: Corpus | None) -> None:
    """Object to two texts where the model reads and writes no plain text."""
    task = translator.task
    if corpus is not None and (task.goes_on or not task.plain):
        raise UserError(
            f"{run} is a {task.noun}, which is not measured on a text and its translation; leave --source and --target "
            "out, and the data that it was validated on is taken."
        )


def history_reports(run: Run, listen: Listen, *, corpus: Corpus | None = None, sentences: int = SENTENCES) -> None:
    """Measure every whole checkpoint of the run, the oldest first, without importance, which would take long."""
    for place in reversed(list(whole(run.checkpoints))):
        head_report(run, listen, checkpoint=int(place.name), corpus=corpus, sentences=sentences, importance=False)


def validation_corpus(run: Run, recipe: Recipe) -> tuple[Pairs, Part | None]:
    """Return the data that a run was validated on, and which part of it, or say that it is gone."""
    task = task_of(recipe)
    training, valid = task.corpora(recipe.data)
    corpus = valid or training
    try:
        corpus.check_counts()
    except UserError as error:
        named = ", or name a text to measure by --source and --target" if task.languages else ""
        raise UserError(
            f"{run} was validated on {corpus}, which cannot be read from here: {error} Go to the folder where it was "
            f"trained{named}."
        ) from None
    return corpus, None if valid else task.split(corpus, recipe).validation


def pairs_to_measure(run: Run, translator: Translator, corpus: Corpus | None) -> TokenPairs:
    """Return the given text, or the run's validation text, as token arrays."""
    text, part = (corpus, None) if corpus else validation_corpus(run, translator.recipe)
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return translator.task.arrays(text, tokenizers, translator.recipe.data.longest, part, lambda _done: None)


@dataclass(frozen=True, eq=False)
class Side:
    """What is known of the pieces of one vocabulary."""

    number: NDArray[np.int64]  # V, the same for pieces of both vocabularies that are spelled alike
    punctuation: Flags  # V
    frequency: NDArray[np.int64]  # V, in the text that is measured

    @classmethod
    def of(cls, tokenizer: Tokenizer, tokens: NDArray[Any], numbering: dict[str, int]) -> "Side":
        """Count the tokens of one side of a text, and look at their spelling."""
        spelled = tokenizer.spell(range(len(tokenizer)))
        return cls(
            number=np.array([numbering.setdefault(piece, len(numbering)) for piece in spelled]),
            punctuation=np.array([is_punctuation(piece) for piece in spelled]),
            frequency=np.bincount(tokens, minlength=len(tokenizer)),
        )


def is_punctuation(piece: str) -> bool:
    """Say whether a piece is made of punctuation alone."""
    return bool(piece.strip()) and all(category(letter)[0] in "PS" for letter in piece.strip())


@dataclass(frozen=True, eq=False)
class Text:
    """The sentence pairs that are measured."""

    pairs: TokenPairs
    count: int  # of the pairs, from the first
    source: Side
    target: Side
    links: list[Flags]  # a matrix T S a pair

    @classmethod
    def of(cls, translator: Translator, pairs: TokenPairs, sentences: int) -> "Text":
        """Take the first pairs of a text and count what is in them."""
        count = min(sentences, len(pairs))
        numbering: dict[str, int] = {}
        sources = pairs.source_tokens[: pairs.source_offsets[count]]
        targets = pairs.target_tokens[: pairs.target_offsets[count]]
        source = Side.of(translator.source_tokenizer, sources, numbering)
        target = Side.of(translator.target_tokenizer, targets, numbering)
        words = [(pairs.source(number)[:-1], pairs.target(number)[:-1]) for number in range(count)]
        links = likely_links(words) if len(sources) else []  # a language model has no source to link anything to
        return cls(pairs, count, source, target, [np.pad(each, ((0, 1), (0, 1))) for each in links])

    @property
    def fingerprint(self) -> str:
        """What makes this text different from any other."""
        return f"{self.pairs.fingerprint}:{self.count}"

    def batches(self) -> list[Batch]:
        """Return the pairs side by side."""
        lengths = self.pairs.source_lengths[: self.count], self.pairs.target_lengths[: self.count]
        order = Order(*lengths, BATCH_TOKENS, 1, 0)
        return [collate(self.pairs, numbers) for numbers in order.batches(0)]

    def readings(self, number: int, weights: dict[Kind, NDArray[np.float32]]) -> Iterator[tuple[Kind, Reading]]:
        """Yield what the weights (L H T S, padded) of one pair say, kind by kind, of the kinds that there are."""
        source, target = self.pairs.source(number), self.pairs.target(number)
        prefix = np.concatenate([[START], target[:-1]])
        read, had, said = (source, self.source), (prefix, self.target), (target, self.target)
        if "encoder" in weights:
            yield "encoder", self.reading(weights["encoder"], read, read, own=True)
        if "decoder" in weights:
            yield "decoder", self.reading(weights["decoder"], had, had, own=True)
        if "cross" in weights:
            yield "cross", self.reading(weights["cross"], said, read, self.links[number])

    def reading(
        self,
        weights: NDArray[np.float32],
        rows: tuple[NDArray[Any], "Side"],
        columns: tuple[NDArray[Any], "Side"],
        links: Flags | None = None,
        *,
        own: bool = False,
    ) -> Reading:
        """Put weights together with what stands at their positions: tokens, and what is known of their side."""
        (looking, row_side), (looked_at, column_side) = rows, columns
        return Reading(
            weights=weights[:, :, : len(looking), : len(looked_at)],
            rows=row_side.number[looking],
            columns=column_side.number[looked_at],
            special_rows=is_special(looking),
            special=is_special(looked_at),
            punctuation=column_side.punctuation[looked_at] & ~is_special(looked_at),
            frequency=column_side.frequency[looked_at],
            own=own,
            causal=bool(looking[0] == START),
            links=links,
        )


def is_special(tokens: NDArray[Any]) -> Flags:
    """Say of each token whether it stands for the start or the end rather than for text."""
    return np.isin(tokens, (START, END))


def measured(translator: Translator, text: Text, importance: bool, listen: Listen) -> dict[str, Any]:
    """Measure every head, and the loss without each of them if asked to."""
    judge = Judge(translator.model.eval(), text.batches(), translator.device)
    found: dict[str, Any] = {"loss": judge.loss(judge.model, judge.memories())}
    heads = list(statistics(translator, text, judge.batches, listen))
    if importance:
        found["importance"] = True
        places: list[Head] = [(head["kind"], head["layer"], head["head"]) for head in heads]
        for number, (place, head) in enumerate(zip(places, heads, strict=True), 1):
            head["importance"] = round(judge.loss_without(place) - found["loss"], 6)
            listen(Working("Switching heads off, one at a time", number, len(places)))
    return {**found, "heads": heads}


def statistics(
    translator: Translator, text: Text, batches: Sequence[Batch], listen: Listen
) -> Iterator[dict[str, Any]]:
    """Yield every head with its badges and numbers, kind by kind."""
    sums: dict[Kind, Statistics] = {}
    done = 0
    for batch in batches:
        weights = recorded(translator, batch)
        sums = sums or {kind: Statistics(*array.shape[1:3]) for kind, array in weights.items()}
        for row, number in enumerate(batch.numbers.tolist()):
            for kind, reading in text.readings(number, {name: array[row] for name, array in weights.items()}):
                sums[kind].add(reading)
        done += len(batch.numbers)
        listen(Working("Watching the heads read", done, text.count))
    for kind, found in sums.items():
        yield from ({"kind": kind, **head} for head in found.heads())


@torch.inference_mode()
def recorded(translator: Translator, batch: Batch) -> dict[Kind, NDArray[np.float32]]:
    """Return all weights of a batch: B L H T S of each kind that the architecture has."""
    source, prefix = (torch.from_numpy(part).to(translator.device) for part in (batch.source, batch.prefix))
    found = translator.model.attention(source, prefix)
    layers = {kind: getattr(found, kind) for kind in KINDS}
    seen = {kind: of for kind, of in layers.items() if of and of[0].numel()}  # a language model reads no source
    return {kind: torch.stack(of, dim=1).float().cpu().numpy() for kind, of in seen.items()}


class Judge:
    """Measures the loss per target token, not smoothed, of a model and of the same model without a head."""

    def __init__(self, model: Network, batches: list[Batch], device: torch.device) -> None:
        self.model, self.batches, self.device = model, batches, device
        self.known: list[Memory] | None = None

    def loss_without(self, head: Head) -> float:
        """Return the loss when a head has no effect; one of the decoder leaves what the encoder says as it is."""
        assert has_heads(self.model), f"a head of {type(self.model)} cannot be switched off"
        model = without(self.model, [head])
        return self.loss(model, self.read(model) if head[0] == "encoder" else self.memories())

    def memories(self) -> list[Memory]:
        """Return what the whole model's encoder says of each batch; it says it once."""
        self.known = self.known or self.read(self.model)
        return self.known

    @torch.inference_mode()
    def read(self, model: Network) -> list[Memory]:
        """Encode every batch."""
        return [model.encode(torch.from_numpy(batch.source).to(self.device)) for batch in self.batches]

    @torch.inference_mode()
    def loss(self, model: Network, memories: list[Memory]) -> float:
        """Return the mean loss per target token."""
        total = 0.0
        for batch, memory in zip(self.batches, memories, strict=True):
            prefix, target = (torch.from_numpy(part).to(self.device) for part in (batch.prefix, batch.target))
            _, plain = projected_cross_entropy(model.hidden(prefix, memory), model.output, target, 0.0)
            total += plain.item()
        return total / sum(batch.tokens for batch in self.batches)
