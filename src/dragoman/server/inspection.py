"""What the worker reports besides a translation: attention, word alignment, head reports, checkpoints."""

from collections.abc import Sequence
from typing import Any

from dragoman.decoding.hypothesis import Hypothesis
from dragoman.errors import UserError
from dragoman.processes import Message
from dragoman.run import Run
from dragoman.server.registry import ServedModel
from dragoman.tasks.head_cache import cached_head_history, cached_head_report, saved_checkpoints
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.viewer.alignment import all_alignments, preferred_method, source_and_target_words
from dragoman.viewer.document import viewer_document
from dragoman.viewer.words import WordSpan


def inspect_translation(model: ServedModel, message: Message, max_tokens: int) -> dict[str, Any]:
    """Return the viewer's document of one translation: attention weights, alignment, hypotheses."""
    translator = model.translator
    for text in (translator.task.to_model_input(message["text"]), message.get("target") or ""):
        _check_length(len(translator.source_tokens(text)), max_tokens)
    record = translator.inspect(
        message["text"],
        target=message.get("target"),
        beam=message.get("beam"),
        prefix=message["prefix"],
        without=[(kind, layer, head) for kind, layer, head in message["ablate_heads"]],
        trace=message["trace"],
    )
    _check_length(len(record.target_pieces), max_tokens)
    return {**viewer_document(record), "model": model.name}


def _check_length(tokens: int, max_tokens: int) -> None:
    if tokens > max_tokens:  # its matrices would be too large to send and to draw
        raise UserError(f"The sentence has {tokens} tokens; attention is shown for at most {max_tokens}.")


def head_report(model: ServedModel) -> dict[str, Any] | None:
    """Return the saved head report of a model and its history; None if the heads have not been measured."""
    report = cached_head_report(Run(model.run))
    return {**report, "history": cached_head_history(Run(model.run))} if report else None


def list_checkpoints(model: ServedModel) -> list[dict[str, Any]]:
    """Return the checkpoints of a model's run, oldest first."""
    return saved_checkpoints(Run(model.run))


def translation_details(
    translator: SequenceModel, text: str, segments: Sequence[str], hypotheses: Sequence[Hypothesis], translation: str
) -> dict[str, Any]:
    """Return the tokens, words and word alignment of a translation, as character offsets in both texts."""
    details: dict[str, list[Any]] = {"tokens": [], "source_words": [], "target_words": [], "alignment": []}
    source_start = target_start = 0
    tokenizer = translator.target_tokenizer
    for segment, hypothesis in zip(segments, hypotheses, strict=True):
        target = tokenizer.decode(hypothesis.tokens)
        source_start = max(0, text.find(segment.strip(), source_start))
        target_start = max(0, translation.find(target.strip(), target_start))
        source_shift, target_shift = source_start - _indent(segment), target_start - _indent(target)
        details["tokens"] += [
            {"piece": piece, "start": max(0, start + target_shift), "end": max(0, end + target_shift)}
            for piece, (start, end) in zip(
                tokenizer.spell(hypothesis.tokens), tokenizer.spans(hypothesis.tokens), strict=True
            )
        ]
        if segment.strip() and hypothesis.tokens:
            _add_alignment(details, translator, segment, target, (source_shift, target_shift))
    return details


def _add_alignment(
    details: dict[str, list[Any]], translator: SequenceModel, segment: str, target: str, shifts: tuple[int, int]
) -> None:
    record = translator.inspect(segment, target=target)
    source_words, target_words = source_and_target_words(record)
    first_source, first_target = len(details["source_words"]), len(details["target_words"])
    details["source_words"] += _shifted_spans(source_words, shifts[0])
    details["target_words"] += _shifted_spans(target_words, shifts[1])
    methods = all_alignments(record)  # none if the model does not attend to the source
    links = methods[preferred_method(record)].links if methods else ()
    details["alignment"] += [[link.source + first_source, link.target + first_target] for link in links]


def _shifted_spans(words: Sequence[WordSpan], shift: int) -> list[tuple[int, int]]:
    return [(word.span[0] + shift, word.span[1] + shift) if word.span else (0, 0) for word in words]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
