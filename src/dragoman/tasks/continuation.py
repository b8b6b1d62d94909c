"""A language model in use: it goes on with a text, and says how well it would have predicted one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor

from dragoman.data.token_windows import tokenize_long_text
from dragoman.decoding.generate import CausalTransducer, SamplingOptions, generate_tokens
from dragoman.decoding.token_losses import token_losses, window_stride
from dragoman.errors import UserError
from dragoman.evaluation.perplexity import Perplexity, TextLoss
from dragoman.text.streaming import StreamingDecoder, text_until_stop
from dragoman.text.tokenizer import BYTE_VALUES, Tokenizer
from dragoman.tokens import END, UNKNOWN

if TYPE_CHECKING:
    from dragoman.tasks.translator import Translator

_SPACE_LETTER = next(letter for letter, byte in BYTE_VALUES.items() if byte == ord(" "))
_MAX_LISTED_CHARACTERS = 5  # unknown characters that are named, at most

FinishReason = Literal["length", "stop", "end"]
_OnNotice = Callable[[str], None]


@dataclass(frozen=True)
class Continuation:
    """How a text went on."""

    prompt: str
    text: str  # what follows the prompt
    # at the length asked for, before the string to stop at, or where the model found the text complete
    ended: FinishReason
    tokens: int
    log_probability: float  # of all tokens, as the model sees them
    slid: bool  # whether the beginning went out of the model's sight


def ignore_notice(_text: str) -> None:
    """Hear something and do nothing."""


class ContinuationStream:
    """A text that is being gone on with: iterate for the pieces of text; `result` tells all when it has ended."""

    def __init__(
        self,
        translator: "Translator",
        prompt: str,
        sampling: SamplingOptions,
        *,
        length: int,
        stop: str = "",
        sample: int = 0,
        on_notice: _OnNotice = ignore_notice,
    ) -> None:
        if not translator.task.is_language_model:
            raise UserError(f"{translator.run or 'The model'} is a {translator.task.noun}; it goes on with no text.")
        if length < 1:
            raise UserError(f"length {length} is no length to write; ask for 1 token or more.")
        sampling.check()
        self.translator, self.prompt, self.sampling = translator, prompt, sampling
        self.length, self.stop, self.sample, self.on_notice = length, stop, sample, on_notice
        self.tokens: list[int] = []
        self.log_probabilities: list[float] = []
        self.texts: list[str] = []
        self.has_slid = self.found_stop = False

    def __iter__(self) -> Iterator[str]:
        """Yield text as soon as it can be shown, never nothing and never half a character."""
        for piece in self._text_until_stop():
            if piece:
                self.texts.append(piece)
                yield piece

    def _text_until_stop(self) -> Iterator[str]:
        """Yield text until the string to stop at is there, and note whether it is."""
        self.found_stop = yield from text_until_stop(self.stop, self._decoded_pieces())

    def _decoded_pieces(self) -> Iterator[str]:
        """Yield what each token adds to the text."""
        tokenizer = self.translator.target_tokenizer
        read, opening = _prompt_tokens(tokenizer, self.prompt)
        _notice_unknown_characters(tokenizer, self.prompt, read, self.on_notice)
        writing = StreamingDecoder(tokenizer, is_continuation=bool(read) and opening is None)
        for token, log_probability in generate_tokens(
            cast(CausalTransducer, self.translator.model),
            read,
            self.sampling,
            length=self.length,
            window=self.translator.max_length,
            device=self.translator.device,
            sample=self.sample,
            first_token_mask=opening,
            on_slide=self._notice_slide,
        ):
            self.tokens.append(token)
            self.log_probabilities.append(log_probability)
            yield writing.add(token)
        yield writing.end()

    def _notice_slide(self) -> None:
        """Say once that the beginning of the text is out of sight."""
        if not self.has_slid:
            window = self.translator.max_length
            self.on_notice(
                f"The model sees {window} tokens at once, as it was trained: what is longer is read again from its "
                f"last {window // 2} tokens, and what stands before them is out of sight."
            )
        self.has_slid = True

    def result(self) -> Continuation:
        """Return what came of it."""
        at_end: FinishReason = "end" if self.tokens and self.tokens[-1] == END else "length"
        ended: FinishReason = "stop" if self.found_stop else at_end
        return Continuation(
            self.prompt, "".join(self.texts), ended, len(self.tokens), sum(self.log_probabilities), self.has_slid
        )


def _prompt_tokens(tokenizer: Tokenizer, prompt: str) -> tuple[list[int], Tensor | None]:
    """Return the tokens of a prompt, and which tokens (V) may follow it, if not all may.

    Pieces of words hold the space before them. So a space at the end of a prompt is the next piece's affair, and then
    only pieces that have one may follow.
    """
    if prompt.endswith(" ") and (words := _word_start_mask(tokenizer)).any():
        return tokenizer.encode(prompt[:-1]) if prompt[:-1] else [], words
    return tokenizer.encode(prompt) if prompt else [], None


def _word_start_mask(tokenizer: Tokenizer) -> Tensor:
    """Say which pieces (V) are a space with something behind it."""
    worded = [
        tokenizer.is_byte_level and piece.startswith(_SPACE_LETTER) and len(piece) > 1
        for piece in tokenizer.vocabulary_pieces
    ]
    return torch.tensor(worded)


def _notice_unknown_characters(tokenizer: Tokenizer, prompt: str, tokens: Sequence[int], on_notice: _OnNotice) -> None:
    """Say which characters of a prompt the model has never seen."""
    if UNKNOWN not in tokens:
        return
    strange = list(dict.fromkeys(piece.text for piece in tokenizer.pieces(prompt) if piece.token == UNKNOWN))
    named = ", ".join(map(repr, strange[:_MAX_LISTED_CHARACTERS])) + (
        " and others" if len(strange) > _MAX_LISTED_CHARACTERS else ""
    )
    on_notice(
        f"The text that the model was trained on has no {named}; in the prompt the model sees an unknown sign instead."
    )


def measure_perplexity(
    translator: "Translator",
    text: str,
    progress: Callable[[int], None] | None = None,
    on_notice: _OnNotice = ignore_notice,
) -> Perplexity:
    """Predict every token of a text once, with half a window of context or more, and add up how improbable it was."""
    tokenizer, window = translator.target_tokenizer, translator.max_length
    tokens = tokenize_long_text(text, tokenizer)
    unknown = int((tokens == UNKNOWN).sum())
    if unknown:
        on_notice(f"{unknown:,} of {len(tokens):,} tokens are unknown to the model, and predicted as one unknown sign.")
    nats = token_losses(translator.model, tokens, window, translator.device, progress)
    return Perplexity.from_loss(TextLoss(float(nats.sum()), len(tokens), unknown, window, window_stride(window)), text)
