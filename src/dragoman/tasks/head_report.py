"""The head report: statistics of every attention head on the validation data, and the loss without it.

`viewer/head_statistics.py` measures the weights. The importance of a head is the loss it spares (Michel et al. 2019,
arXiv 1905.10650): the validation loss of the model in which the head has no effect, minus that of the model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import category

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.checkpoints import intact_checkpoints
from dragoman.data.arrays import TokenPairs
from dragoman.data.batches import ArrayBatch, Order, collate
from dragoman.data.corpus import ParallelCorpus, TextPairs
from dragoman.data.split import SplitPart
from dragoman.decoding.scoring import token_log_probabilities
from dragoman.decoding.source import to_source
from dragoman.errors import UserError
from dragoman.ibm1 import likely_links
from dragoman.model_config import AttentionKind, HeadIndex
from dragoman.models.head_ablation import ablate_heads, can_ablate_heads
from dragoman.models.transducer import Memory, Transducer
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.attention import attention_weights
from dragoman.tasks.events import OnEvent, ProgressUpdate
from dragoman.tasks.head_cache import REPORT_FORMAT, HeadReport, cached_head_report, identify_weights, write_head_report
from dragoman.tasks.inspection import attention_sizes
from dragoman.tasks.recording_facts import find_silent_positions, link_tokens_to_times
from dragoman.tasks.registry import task_for
from dragoman.tasks.sequence_model import SequenceModel, load
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, START
from dragoman.viewer.head_statistics import BADGE_THRESHOLDS, BoolArray, HeadStatistics, SentenceAttention

_MAX_SENTENCES = 1000  # of the validation text, at most
_BATCH_TOKENS = 4096  # all attention weights of a batch are in memory at once


def make_head_report(
    run: Run,
    on_event: OnEvent,
    *,
    checkpoint: int | None = None,
    corpus: ParallelCorpus | None = None,
    sentences: int = _MAX_SENTENCES,
    importance: bool = True,
) -> HeadReport:
    """Return the report of the model or of a checkpoint; a stored report is reused if it is up to date."""
    sequence_model = load(run, checkpoint=checkpoint)
    _check_has_attention(run, sequence_model)
    _check_corpus_option(run, sequence_model, corpus)
    importance = importance and can_ablate_heads(sequence_model.model)  # only a Transformer supports ablation
    text = MeasuredText.from_pairs(sequence_model, load_measured_pairs(run, sequence_model, corpus), sentences)
    name, weights = identify_weights(run, checkpoint)
    cached = cached_head_report(run, checkpoint)
    if cached and cached["data"]["fingerprint"] == text.fingerprint and not (importance and "importance" not in cached):
        return cached
    measurements = measure_heads(sequence_model, text, importance, on_event)
    corpus_name = str(corpus or validation_corpus(run, sequence_model.recipe)[0])
    report: HeadReport = {
        "format": REPORT_FORMAT,
        "step": int(name) if name.isdecimal() else None,
        "weights": weights,
        "data": {
            "name": corpus_name,
            "fingerprint": text.fingerprint,
            "sentences": text.count,
            "unit": sequence_model.task.unit,
        },
        "thresholds": BADGE_THRESHOLDS,
        **measurements,
    }
    write_head_report(run, name, report)
    return report


def _check_has_attention(run: Run, sequence_model: SequenceModel) -> None:
    """Raise an error for a model without attention; models of signals are Transformers."""
    if not sequence_model.task.reads_signals and not attention_sizes(sequence_model.model, sequence_model.device):
        architecture = sequence_model.recipe.model.architecture
        raise UserError(f'{run} has no attention to measure: architecture "{architecture}" does not use attention.')


def _check_corpus_option(run: Run, sequence_model: SequenceModel, corpus: ParallelCorpus | None) -> None:
    """Raise an error if texts are given for a model that is not trained on plain text pairs."""
    task = sequence_model.task
    if corpus is not None and (task.is_language_model or not task.raw_text_io):
        raise UserError(
            f"{run} is a {task.noun}, which cannot be measured on a text and its translation; omit --source and "
            "--target to measure it on its validation set."
        )


def make_history_reports(
    run: Run, on_event: OnEvent, *, corpus: ParallelCorpus | None = None, sentences: int = _MAX_SENTENCES
) -> None:
    """Measure every intact checkpoint, the oldest first, without importance, which takes long."""
    for path in reversed(list(intact_checkpoints(run.checkpoints_dir))):
        make_head_report(run, on_event, checkpoint=int(path.name), corpus=corpus, sentences=sentences, importance=False)


def validation_corpus(run: Run, recipe: Recipe) -> tuple[TextPairs, SplitPart | None]:
    """Return the validation data of a run, and which part of it; raise an error if it cannot be read."""
    task = task_for(recipe)
    training, valid = task.open_corpora(recipe.data)
    corpus = valid or training
    try:
        corpus.count_pairs()
    except UserError as error:
        named = ", or give a text with --source and --target" if task.has_language_pair else ""
        raise UserError(
            f"{run} was validated on {corpus}, which cannot be read: {error} Run the command in the directory where "
            f"it was trained{named}."
        ) from None
    return corpus, None if valid else task.split_validation(corpus, recipe).validation


def load_measured_pairs(run: Run, sequence_model: SequenceModel, corpus: ParallelCorpus | None) -> TokenPairs:
    """Return the given text, or the run's validation data, as token arrays."""
    text, part = (corpus, None) if corpus else validation_corpus(run, sequence_model.recipe)
    tokenizers = sequence_model.source_tokenizer, sequence_model.target_tokenizer
    return sequence_model.task.tokenize_corpus(
        text, tokenizers, sequence_model.recipe.data.longest, part, lambda _done: None
    )


@dataclass(frozen=True, eq=False)
class VocabularyStatistics:
    """Facts about the pieces of one vocabulary."""

    piece_numbers: NDArray[np.int64]  # V, the same for pieces of both vocabularies that are spelled alike
    punctuation: BoolArray  # V
    frequency: NDArray[np.int64]  # V, in the text that is measured

    @classmethod
    def from_tokens(
        cls, tokenizer: Tokenizer, tokens: NDArray[Any], numbering: dict[str, int]
    ) -> "VocabularyStatistics":
        """Compute the facts for the tokens of one side of a text."""
        spelled = tokenizer.spell(range(len(tokenizer)))
        return cls(
            piece_numbers=np.array([numbering.setdefault(piece, len(numbering)) for piece in spelled]),
            punctuation=np.array([_is_punctuation(piece) for piece in spelled]),
            frequency=np.bincount(tokens, minlength=len(tokenizer)),
        )


def _is_punctuation(piece: str) -> bool:
    """Return whether a piece consists of punctuation."""
    return bool(piece.strip()) and all(category(letter)[0] in "PS" for letter in piece.strip())


@dataclass(frozen=True, eq=False)
class MeasuredText:
    """The sentence pairs that are measured."""

    pairs: TokenPairs
    count: int  # of the pairs, from the first
    source: VocabularyStatistics | None  # None if the sources are recordings
    target: VocabularyStatistics
    links: list[BoolArray | None]  # a matrix T S a pair
    silence: list[BoolArray]  # which positions of each recording are silent (S)

    @classmethod
    def from_pairs(cls, sequence_model: SequenceModel, pairs: TokenPairs, sentences: int) -> "MeasuredText":
        """Take the first pairs of a text and compute their statistics."""
        count = min(sentences, len(pairs))
        if sequence_model.task.reads_signals:
            return cls._from_recordings(sequence_model, pairs, count)
        numbering: dict[str, int] = {}
        sources = pairs.source_tokens[: pairs.source_offsets[count]]
        targets = pairs.target_tokens[: pairs.target_offsets[count]]
        source = VocabularyStatistics.from_tokens(sequence_model.source_tokenizer, sources, numbering)
        target = VocabularyStatistics.from_tokens(sequence_model.target_tokenizer, targets, numbering)
        words = [(pairs.source(number)[:-1], pairs.target(number)[:-1]) for number in range(count)]
        links = likely_links(words) if len(sources) else []  # a language model has no source to link anything to
        return cls(pairs, count, source, target, [np.pad(matrix, ((0, 1), (0, 1))) for matrix in links], [])

    @classmethod
    def _from_recordings(cls, sequence_model: SequenceModel, pairs: TokenPairs, count: int) -> "MeasuredText":
        """Take the first recordings, with their silence and with links by the model's CTC output."""
        targets = pairs.target_tokens[: pairs.target_offsets[count]]
        target = VocabularyStatistics.from_tokens(sequence_model.target_tokenizer, targets, {})
        links = [
            link_tokens_to_times(sequence_model, pairs.source(number), pairs.target(number)[:-1].tolist())
            for number in range(count)
        ]
        ending = [None if matrix is None else np.pad(matrix, ((0, 1), (0, 0))) for matrix in links]
        silence = [find_silent_positions(pairs.source(number)) for number in range(count)]
        return cls(pairs, count, None, target, ending, silence)

    @property
    def fingerprint(self) -> str:
        """Identifies the text and the number of pairs."""
        return f"{self.pairs.fingerprint}:{self.count}"

    def batches(self) -> list[ArrayBatch]:
        """Return the pairs as batches."""
        costs, target_lengths = self.pairs.costs[: self.count], self.pairs.target_lengths[: self.count]
        order = Order(costs, _BATCH_TOKENS, seed=0, tie_break=target_lengths)
        return [collate(self.pairs, numbers) for numbers in order.epoch_batches(0)]

    def attention_readings(
        self, number: int, weights: dict[AttentionKind, NDArray[np.float32]]
    ) -> Iterator[tuple[AttentionKind, SentenceAttention]]:
        """Yield the weights (L H T S, padded) of one pair with the facts about its tokens, kind by kind."""
        target = self.pairs.target(number)
        prefix = np.concatenate([[START], target[:-1]])
        prefix_side, target_side = (prefix, self.target), (target, self.target)
        if "decoder" in weights:
            yield "decoder", self._attention_reading(weights["decoder"], prefix_side, prefix_side, own=True)
        if self.source is None:
            yield "encoder", self._recording_reading(number, weights["encoder"])
            yield "cross", self._recording_reading(number, weights["cross"], target, self.links[number])
            return
        source_side = self.pairs.source(number), self.source
        if "encoder" in weights:
            yield "encoder", self._attention_reading(weights["encoder"], source_side, source_side, own=True)
        if "cross" in weights:
            yield "cross", self._attention_reading(weights["cross"], target_side, source_side, self.links[number])

    def _attention_reading(
        self,
        weights: NDArray[np.float32],
        rows: tuple[NDArray[Any], "VocabularyStatistics"],
        columns: tuple[NDArray[Any], "VocabularyStatistics"],
        links: BoolArray | None = None,
        *,
        own: bool = False,
    ) -> SentenceAttention:
        """Combine weights with the facts about the tokens at their positions."""
        (row_ids, row_side), (column_ids, column_side) = rows, columns
        return SentenceAttention(
            weights=weights[:, :, : len(row_ids), : len(column_ids)],
            row_tokens=row_side.piece_numbers[row_ids],
            column_tokens=column_side.piece_numbers[column_ids],
            special_rows=_special_token_mask(row_ids),
            special_columns=_special_token_mask(column_ids),
            punctuation_columns=column_side.punctuation[column_ids] & ~_special_token_mask(column_ids),
            column_frequency=column_side.frequency[column_ids],
            is_self_attention=own,
            is_causal=bool(row_ids[0] == START),
            links=links,
        )

    def _recording_reading(
        self,
        number: int,
        weights: NDArray[np.float32],
        target: NDArray[Any] | None = None,
        links: BoolArray | None = None,
    ) -> SentenceAttention:
        """Combine weights over a recording, of its own positions or of target tokens, with its silence."""
        silent = self.silence[number]
        none = np.zeros(len(silent), dtype=np.bool_)
        rows = none if target is None else _special_token_mask(target)
        return SentenceAttention(
            weights=weights[:, :, : len(rows), : len(silent)],
            row_tokens=np.zeros(len(rows), dtype=np.int64),
            column_tokens=np.zeros(len(silent), dtype=np.int64),
            special_rows=rows,
            special_columns=none,
            punctuation_columns=none,
            column_frequency=np.zeros(len(silent), dtype=np.int64),
            is_self_attention=target is None,
            links=links,
            silent_columns=silent,
        )


def _special_token_mask(tokens: NDArray[Any]) -> BoolArray:
    """Return a mask of the tokens START and END."""
    return np.isin(tokens, (START, END))


def measure_heads(
    sequence_model: SequenceModel, text: MeasuredText, importance: bool, on_event: OnEvent
) -> dict[str, Any]:
    """Measure every head and, with `importance`, the loss without it."""
    loss = _AblationLoss(sequence_model.model.eval(), text.batches(), sequence_model.device)
    report: dict[str, Any] = {"loss": loss.full()}
    heads = list(_head_statistics(sequence_model, text, loss.batches, on_event))
    if importance:
        report["importance"] = True
        indices: list[HeadIndex] = [(head["kind"], head["layer"], head["head"]) for head in heads]
        for number, (index, head) in enumerate(zip(indices, heads, strict=True), 1):
            head["importance"] = round(loss.without(index) - report["loss"], 6)
            on_event(ProgressUpdate("Measuring the loss without each head", number, len(indices)))
    return {**report, "heads": heads}


def _head_statistics(
    sequence_model: SequenceModel, text: MeasuredText, batches: Sequence[ArrayBatch], on_event: OnEvent
) -> Iterator[dict[str, Any]]:
    """Yield the badges and statistics of every head, kind by kind."""
    sums: dict[AttentionKind, HeadStatistics] = {}
    done = 0
    for batch in batches:
        source = to_source(batch.source, batch.source_lengths, sequence_model.device)
        prefix = torch.from_numpy(batch.prefix).to(sequence_model.device)
        recorded = attention_weights(sequence_model.model, source, prefix)
        weights = {kind: array for kind, array in recorded.items() if array.size}  # a language model has no source
        sums = sums or {kind: HeadStatistics(*array.shape[1:3]) for kind, array in weights.items()}
        for row, number in enumerate(batch.indices.tolist()):
            for kind, reading in text.attention_readings(number, {name: array[row] for name, array in weights.items()}):
                sums[kind].add(reading)
        done += len(batch.indices)
        on_event(ProgressUpdate("Recording attention", done, text.count))
    for kind, statistics in sums.items():
        yield from ({"kind": kind, **head} for head in statistics.report())


class _AblationLoss:
    """Computes the loss per target token, without label smoothing, of a model and of the model without a head."""

    def __init__(self, model: Transducer, batches: list[ArrayBatch], device: torch.device) -> None:
        self.model, self.batches, self.device = model, batches, device
        self.memories = self._encode_batches(model)

    def full(self) -> float:
        """Return the loss of the whole model."""
        return self._mean_loss(self.model, self.memories)

    def without(self, head: HeadIndex) -> float:
        """Return the loss with a head ablated; the encoder's output is reused for heads of the decoder."""
        assert can_ablate_heads(self.model), f"a head of {type(self.model)} cannot be ablated"
        model = ablate_heads(self.model, [head])
        return self._mean_loss(model, self._encode_batches(model) if head[0] == "encoder" else self.memories)

    @torch.inference_mode()
    def _encode_batches(self, model: Transducer) -> list[Memory]:
        return [model.encode(to_source(batch.source, batch.source_lengths, self.device)) for batch in self.batches]

    @torch.inference_mode()
    def _mean_loss(self, model: Transducer, memories: list[Memory]) -> float:
        total = 0.0
        for batch, memory in zip(self.batches, memories, strict=True):
            prefix, target = (torch.from_numpy(part).to(self.device) for part in (batch.prefix, batch.target))
            total -= token_log_probabilities(model.decode(prefix, memory), target).sum(dtype=torch.float64).item()
        return total / sum(batch.tokens for batch in self.batches)
