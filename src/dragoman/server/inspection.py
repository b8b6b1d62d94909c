"""What the worker reports besides a translation: attention, word alignment, head reports, checkpoints."""

from collections.abc import Sequence
from typing import Any

from dragoman.errors import UserError
from dragoman.processes import Message
from dragoman.run import Run
from dragoman.server.registry import ServedModel
from dragoman.server.stage import Look, looking
from dragoman.tasks.attention import record_batch
from dragoman.tasks.head_cache import cached_head_history, cached_head_report, saved_checkpoints
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.viewer.alignment import preferred_alignment, source_and_target_words
from dragoman.viewer.document import viewer_document
from dragoman.viewer.record import AttentionRecord

Details = dict[str, list[Any]]
_MAX_DETAILS_TOKENS = 512


def inspect_translation(
    translator: SequenceModel, message: Message, max_tokens: int, look: Look = None
) -> dict[str, Any]:
    """Return the viewer's document of one translation: attention weights, alignment, hypotheses."""
    texts = (translator.task.to_model_input(message["text"]), message.get("target") or "", message["prefix"])
    for text in texts:
        _check_length(len(translator.source_tokens(text)), max_tokens)
    record = translator.inspect(
        message["text"],
        target=message.get("target"),
        beam=message.get("beam"),
        prefix=message["prefix"],
        ablate_heads=[(kind, layer, head) for kind, layer, head in message["ablate_heads"]],
        trace=message["trace"],
        on_step=look,
    )
    _check_length(len(record.target_pieces), max_tokens)
    if look:
        look()
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


def check_details_length(source_tokens: int, target_tokens: int) -> None:
    """Refuse details of a sentence whose attention weights would take too much memory."""
    longest = max(source_tokens, target_tokens)
    if longest > _MAX_DETAILS_TOKENS:
        raise UserError(
            f"A sentence has {longest} tokens; details are computed for at most {_MAX_DETAILS_TOKENS}. Send shorter "
            "sentences, or ask for no details."
        )


def record_details(
    translator: SequenceModel, segments: Sequence[tuple[str, tuple[int, ...]]], look: Look
) -> list[Details]:
    """Return the tokens, words and word alignment of segments and their outputs, as character offsets in both."""
    targets = [translator.target_tokenizer.encode(translator.target_tokenizer.decode(tokens)) for _, tokens in segments]
    written = [number for number, (segment, _) in enumerate(segments) if segment.strip() and targets[number]]
    pairs = [
        (segments[number][0], translator.source_tokens(segments[number][0]), targets[number]) for number in written
    ]
    records = dict(zip(written, record_batch(translator, pairs, ("decoder", "cross")) if pairs else (), strict=True))
    return [
        _segment_details(translator, tokens, records.get(number))
        for number, (_, tokens) in looking(enumerate(segments), look)
    ]


def _segment_details(translator: SequenceModel, tokens: tuple[int, ...], record: AttentionRecord | None) -> Details:
    tokenizer = translator.target_tokenizer
    pieces = zip(tokenizer.spell(tokens), tokenizer.spans(tokens), strict=True)
    details: Details = {
        "tokens": [{"piece": piece, "start": start, "end": end} for piece, (start, end) in pieces],
        "source_words": [],
        "target_words": [],
        "alignment": [],
    }
    if record:
        source_words, target_words = source_and_target_words(record)
        details["source_words"] = [word.span or (0, 0) for word in source_words]
        details["target_words"] = [word.span or (0, 0) for word in target_words]
        alignment = preferred_alignment(record)  # None if the model does not attend to the source
        details["alignment"] = [(link.source, link.target) for link in alignment.links] if alignment else []
    return details
