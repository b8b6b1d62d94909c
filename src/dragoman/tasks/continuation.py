"""A language model in use: it goes on with a text, and says how well it would have predicted one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor

from dragoman.data.stream import tokens_of
from dragoman.decoding.generation import Draw, LanguageModel, going_on
from dragoman.decoding.surprise import stride_of, surprises
from dragoman.errors import UserError
from dragoman.evaluation.perplexity import Perplexity, Reading
from dragoman.text.tokenizer import BYTE, Tokenizer
from dragoman.text.writing import Writing, up_to
from dragoman.tokens import END, UNKNOWN

if TYPE_CHECKING:
    from dragoman.tasks.translator import Translator

SPACE = next(letter for letter, byte in BYTE.items() if byte == ord(" "))
NAMED = 5  # unknown characters that are named, at most

Ending = Literal["length", "stop", "end"]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Continuation:
    """How a text went on."""

    prompt: str
    text: str  # what follows the prompt
    ended: Ending  # at the length asked for, before the string to stop at, or where the model found the text complete
    tokens: int
    log_probability: float  # of all tokens, as the model sees them
    slid: bool  # whether the beginning went out of the model's sight


def quiet(_text: str) -> None:
    """Hear something and do nothing."""


class Continuing:
    """A text that is being gone on with: iterate for the pieces of text; `result` tells all when it has ended."""

    def __init__(
        self,
        translator: "Translator",
        prompt: str,
        draw: Draw,
        *,
        length: int,
        stop: str = "",
        sample: int = 0,
        say: Say = quiet,
    ) -> None:
        if not translator.task.goes_on:
            raise UserError(f"{translator.run or 'The model'} is a {translator.task.noun}; it goes on with no text.")
        if length < 1:
            raise UserError(f"length {length} is no length to write; ask for 1 token or more.")
        draw.check()
        self.translator, self.prompt, self.draw = translator, prompt, draw
        self.length, self.stop, self.sample, self.say = length, stop, sample, say
        self.drawn: list[int] = []
        self.sums: list[float] = []
        self.shown: list[str] = []
        self.slid = self.stopped = False

    def __iter__(self) -> Iterator[str]:
        """Yield text as soon as it can be shown, never nothing and never half a character."""
        for piece in self.up_to_the_stop():
            if piece:
                self.shown.append(piece)
                yield piece

    def up_to_the_stop(self) -> Iterator[str]:
        """Yield text until the string to stop at is there, and note whether it is."""
        self.stopped = yield from up_to(self.stop, self.pieces())

    def pieces(self) -> Iterator[str]:
        """Yield what each token adds to the text."""
        tokenizer = self.translator.target_tokenizer
        read, opening = prompt_tokens(tokenizer, self.prompt)
        tell_unknown(tokenizer, self.prompt, read, self.say)
        writing = Writing(tokenizer, begun=bool(read) and opening is None)
        for token, log_probability in going_on(
            cast(LanguageModel, self.translator.model),
            read,
            self.draw,
            length=self.length,
            window=self.translator.longest,
            device=self.translator.device,
            sample=self.sample,
            opening=opening,
            slid=self.tell_slid,
        ):
            self.drawn.append(token)
            self.sums.append(log_probability)
            yield writing.add(token)
        yield writing.end()

    def tell_slid(self) -> None:
        """Say once that the beginning of the text is out of sight."""
        if not self.slid:
            window = self.translator.longest
            self.say(
                f"The model sees {window} tokens at once, as it was trained: what is longer is read again from its "
                f"last {window // 2} tokens, and what stands before them is out of sight."
            )
        self.slid = True

    def result(self) -> Continuation:
        """Return what came of it."""
        at_end: Ending = "end" if self.drawn and self.drawn[-1] == END else "length"
        ended: Ending = "stop" if self.stopped else at_end
        return Continuation(self.prompt, "".join(self.shown), ended, len(self.drawn), sum(self.sums), self.slid)


def prompt_tokens(tokenizer: Tokenizer, prompt: str) -> tuple[list[int], Tensor | None]:
    """Return the tokens of a prompt, and which tokens (V) may follow it, if not all may.

    Pieces of words hold the space before them. So a space at the end of a prompt is the next piece's affair, and then
    only pieces that have one may follow.
    """
    if prompt.endswith(" ") and (words := beginnings(tokenizer)).any():
        return tokenizer.encode(prompt[:-1]) if prompt[:-1] else [], words
    return tokenizer.encode(prompt) if prompt else [], None


def beginnings(tokenizer: Tokenizer) -> Tensor:
    """Say which pieces (V) are a space with something behind it."""
    worded = [tokenizer.byte_level and piece.startswith(SPACE) and len(piece) > 1 for piece in tokenizer.stored]
    return torch.tensor(worded)


def tell_unknown(tokenizer: Tokenizer, prompt: str, tokens: Sequence[int], say: Say) -> None:
    """Say which characters of a prompt the model has never seen."""
    if UNKNOWN not in tokens:
        return
    strange = list(dict.fromkeys(piece.text for piece in tokenizer.pieces(prompt) if piece.token == UNKNOWN))
    named = ", ".join(map(repr, strange[:NAMED])) + (" and others" if len(strange) > NAMED else "")
    say(f"The text that the model was trained on has no {named}; in the prompt the model sees an unknown sign instead.")


def perplexity(
    translator: "Translator", text: str, progress: Callable[[int], None] | None = None, notice: Say = quiet
) -> Perplexity:
    """Predict every token of a text once, with half a window of context or more, and add up how improbable it was."""
    tokenizer, window = translator.target_tokenizer, translator.longest
    tokens = tokens_of(text, tokenizer)
    unknown = int((tokens == UNKNOWN).sum())
    if unknown:
        notice(f"{unknown:,} of {len(tokens):,} tokens are unknown to the model, and predicted as one unknown sign.")
    nats = surprises(translator.model, tokens, window, translator.device, progress)
    return Perplexity.of(Reading(float(nats.sum()), len(tokens), unknown, window, stride_of(window)), text)
