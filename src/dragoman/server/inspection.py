"""What the worker reports besides a translation: attention, word alignment, head reports, checkpoints."""

from collections.abc import Sequence
from typing import Any

from dragoman.decoding.hypothesis import Hypothesis
from dragoman.errors import UserError
from dragoman.processes import Message
from dragoman.run import Run
from dragoman.server.details import merge_details
from dragoman.server.registry import ServedModel
from dragoman.tasks.head_cache import cached_head_history, cached_head_report, saved_checkpoints
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.viewer.alignment import all_alignments, preferred_method, source_and_target_words
from dragoman.viewer.document import viewer_document


def inspect_translation(translator: SequenceModel, message: Message, max_tokens: int) -> dict[str, Any]:
    """Return the viewer's document of one translation: attention weights, alignment, hypotheses."""
    for text in (translator.task.to_model_input(message["text"]), message.get("target") or ""):
        _check_length(len(translator.source_tokens(text)), max_tokens)
    record = translator.inspect(
        message["text"],
        target=message.get("target"),
        beam=message.get("beam"),
        prefix=message["prefix"],
        ablate_heads=[(kind, layer, head) for kind, layer, head in message["ablate_heads"]],
        trace=message["trace"],
    )
    _check_length(len(record.target_pieces), max_tokens)
    return viewer_document(record)


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
    targets = [translator.target_tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses]
    details = [
        _segment_details(translator, segment, target, hypothesis)
        for segment, target, hypothesis in zip(segments, targets, hypotheses, strict=True)
    ]
    return merge_details(zip(segments, targets, details, strict=True), text, translation)


def _segment_details(
    translator: SequenceModel, segment: str, target: str, hypothesis: Hypothesis
) -> dict[str, list[Any]]:
    tokenizer, tokens = translator.target_tokenizer, hypothesis.tokens
    pieces = zip(tokenizer.spell(tokens), tokenizer.spans(tokens), strict=True)
    details: dict[str, list[Any]] = {
        "tokens": [{"piece": piece, "start": start, "end": end} for piece, (start, end) in pieces],
        "source_words": [],
        "target_words": [],
        "alignment": [],
    }
    if segment.strip() and tokens:
        record = translator.inspect(segment, target=target)
        source_words, target_words = source_and_target_words(record)
        details["source_words"] = [word.span or (0, 0) for word in source_words]
        details["target_words"] = [word.span or (0, 0) for word in target_words]
        methods = all_alignments(record)  # none if the model does not attend to the source
        links = methods[preferred_method(record)].links if methods else ()
        details["alignment"] = [(link.source, link.target) for link in links]
    return details
