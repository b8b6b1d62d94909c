"""Generation: a language model continues a text. It is trained on running text, without a source."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack, cast

import torch
from torch import Tensor

from dragoman.data.arrays import OnLinesDone, TokenPairs
from dragoman.data.corpus import Pair, TextPairs
from dragoman.data.running_text import RunningText
from dragoman.data.split import HELD_OUT_DIVISOR, CorpusSplit, SplitPart, pair_hash
from dragoman.data.token_windows import TRAINING_OVERLAP, tokenize_long_text, tokenize_stream
from dragoman.decoding.generate import CausalTransducer, generate_tokens
from dragoman.decoding.sampling_options import TEXT_SAMPLING, SamplingOptions
from dragoman.decoding.scoring import token_losses, window_stride
from dragoman.errors import UserError
from dragoman.evaluation.perplexity import Perplexity, TextLoss
from dragoman.recipe import DataConfig, Recipe
from dragoman.tasks.sequence_model import Prediction, SequenceModel
from dragoman.tasks.task import (
    Example,
    OnNotice,
    OnProgress,
    SampleResult,
    Task,
    ValidationData,
    accumulate_progress,
)
from dragoman.text.streaming import StreamingDecoder, text_until_stop
from dragoman.text.tokenizer import Tokenizer
from dragoman.text.vocabulary import BYTE_VALUES
from dragoman.tokens import END, UNKNOWN

_PROMPT_CHARACTERS = 80  # of the validation text, at most, to begin a sample with
_SAMPLE_TOKENS = 200  # of the sample that is generated at each validation
_MAX_EVALUATED_TOKENS = 1_000_000  # of the validation text, for the model card
_MAX_LISTED_CHARACTERS = 5
_SPACE_LETTER = next(letter for letter, byte in BYTE_VALUES.items() if byte == ord(" "))

_FinishReason = Literal["length", "stop_sequence", "eos_token"]


@dataclass(frozen=True)
class Continuation:
    """A generated text."""

    prompt: str
    text: str  # what follows the prompt
    finish_reason: _FinishReason  # the length limit, the stop string, or the model's END
    tokens: int
    log_probability: float  # of all tokens
    context_truncated: bool  # whether the text outgrew the context window, so that its beginning was dropped


class GenerationOptions(TypedDict, total=False):
    """Options of `LanguageModel.generate` and `stream`; `SamplingOptions` explains the last four.

    Up to `length` tokens are drawn. The text ends before the string `stop`, if it is not empty.
    """

    length: int
    stop: str
    temperature: float
    top_k: int
    top_p: float
    seed: int


def _ignore_notice(_text: str) -> None:
    pass


def _ignore_token() -> None:
    pass


class LanguageModel(SequenceModel):
    """A language model: `generate` continues a text, `stream` does so piece by piece."""

    def generate(
        self,
        prompt: str = "",
        *,
        samples: int = 1,
        details: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> Any:
        """Return the text that follows `prompt`; with several `samples` a list of texts.

        With `details` each text is a `Continuation`. The other options are those of `stream`.
        """
        results: list[str | Continuation] = []
        for sample in range(samples):
            stream = self.stream(prompt, sample=sample, **options)
            text = "".join(stream)
            results.append(stream.result() if details else text)
        return results if samples > 1 else results[0]

    def stream(
        self,
        prompt: str = "",
        *,
        length: int = 500,
        stop: str = "",
        temperature: float = TEXT_SAMPLING.temperature,
        top_k: int = TEXT_SAMPLING.top_k,
        top_p: float = TEXT_SAMPLING.top_p,
        seed: int = TEXT_SAMPLING.seed,
        sample: int = 0,
        on_notice: OnNotice = _ignore_notice,
        on_token: Callable[[], None] = _ignore_token,
    ) -> "ContinuationStream":
        """Return an iterator over the text that follows `prompt`, token by token.

        Up to `length` tokens are drawn, as `SamplingOptions` explains. The text ends before the string `stop`, if it is
        not empty. Each number of `sample` draws another text. `on_notice` is called with messages for the user,
        `on_token` after each token, also one that does not complete a character.
        """
        options = SamplingOptions(temperature, top_k, top_p, seed)
        return ContinuationStream(
            self, prompt, options,
            length=length, stop=stop, sample=sample, on_notice=on_notice, on_token=on_token,
        )  # fmt: skip

    def search(self, texts: Sequence[str], *, n_best: int = 1, **options: Any) -> list[list[Prediction]]:
        """Return `n_best` continuations of each text, of as many tokens as the recipe's `extra_length`."""
        sampling = options.get("sampling") or TEXT_SAMPLING
        return [
            [self._predict_continuation(options.get("prefix", "") + text, sampling, sample) for sample in range(n_best)]
            for text in texts
        ]

    def perplexity(
        self, text: str, progress: Callable[[int], None] | None = None, on_notice: OnNotice = _ignore_notice
    ) -> Perplexity:
        """Return the perplexity of a text; every token is predicted once, from at least half a window of context."""
        tokens = tokenize_long_text(text, self.target_tokenizer)
        unknown = int((tokens == UNKNOWN).sum())
        if unknown:
            on_notice(
                f"{unknown:,} of {len(tokens):,} tokens are not in the vocabulary; each is scored as the unknown token."
            )
        nats = token_losses(self.model, tokens, self.max_length, self.device, progress)
        stride = window_stride(self.max_length)
        return Perplexity.from_loss(TextLoss(float(nats.sum()), len(tokens), unknown, self.max_length, stride), text)

    def _predict_continuation(self, prompt: str, sampling: SamplingOptions, sample: int) -> Prediction:
        stream = ContinuationStream(self, prompt, sampling, length=self.recipe.decoding.extra_length, sample=sample)
        text, total = "".join(stream), sum(stream.log_probabilities)
        pieces = tuple(self.target_tokenizer.spell(stream.tokens))
        truncated = stream.result().finish_reason == "length"
        return Prediction(text, total / max(1, len(pieces)), total, pieces, truncated=truncated)


class ContinuationStream:
    """Iterates over the pieces of a text while it is generated; `result` returns the whole when it has ended."""

    def __init__(
        self,
        model: LanguageModel,
        prompt: str,
        sampling: SamplingOptions,
        *,
        length: int,
        stop: str = "",
        sample: int = 0,
        on_notice: OnNotice = _ignore_notice,
        on_token: Callable[[], None] = _ignore_token,
    ) -> None:
        if length < 1:
            raise UserError(f"length must be at least 1 token, got {length}.")
        self.model, self.prompt, self.sampling = model, prompt, sampling
        self.length, self.stop, self.sample = length, stop, sample
        self.on_notice, self.on_token = on_notice, on_token
        self.tokens: list[int] = []
        self.log_probabilities: list[float] = []
        self.texts: list[str] = []
        self.context_truncated = self.found_stop = False

    def __iter__(self) -> Iterator[str]:
        """Yield text as soon as it is complete: never an empty string, never half a character."""
        for piece in self._text_until_stop():
            if piece:
                self.texts.append(piece)
                yield piece

    def result(self) -> Continuation:
        """Return what was generated so far."""
        finish_reason: _FinishReason = "length"
        if self.found_stop:
            finish_reason = "stop_sequence"
        elif self.tokens and self.tokens[-1] == END:
            finish_reason = "eos_token"
        return Continuation(
            prompt=self.prompt,
            text="".join(self.texts),
            finish_reason=finish_reason,
            tokens=len(self.tokens),
            log_probability=sum(self.log_probabilities),
            context_truncated=self.context_truncated,
        )

    def _text_until_stop(self) -> Iterator[str]:
        self.found_stop = yield from text_until_stop(self.stop, self._decoded_pieces())

    def _decoded_pieces(self) -> Iterator[str]:
        tokenizer = self.model.target_tokenizer
        prompt, first_token_mask = _prompt_tokens(tokenizer, self.prompt)
        _notice_unknown_characters(tokenizer, self.prompt, prompt, self.on_notice)
        decoder = StreamingDecoder(tokenizer, is_continuation=bool(prompt) and first_token_mask is None)
        for token, log_probability in generate_tokens(
            cast(CausalTransducer, self.model.model),
            prompt,
            self.sampling,
            length=self.length,
            window=self.model.max_length,
            device=self.model.device,
            sample=self.sample,
            first_token_mask=first_token_mask,
            on_slide=self._notice_slide,
        ):
            self.tokens.append(token)
            self.log_probabilities.append(log_probability)
            self.on_token()
            yield decoder.add(token)
        yield decoder.end()

    def _notice_slide(self) -> None:
        if not self.context_truncated:
            window = self.model.max_length
            self.on_notice(
                f"The context window of the model is {window} tokens. The text is longer, so the model continues from "
                f"its last {window // 2} tokens and ignores the text before them."
            )
        self.context_truncated = True


class GenerationTask(Task):
    """From the beginning of a text to what may follow."""

    name, noun, gerund, validation_metric = "generate", "language model", "Predicting", "bits per character"
    higher_is_better = False
    model_class = "dragoman.tasks.generate:LanguageModel"
    unit = "window"
    is_language_model = True
    input_hint = "Enter the beginning of a text"
    usage_examples = ('dragoman generate {run} "…"', "dragoman evaluate {run} --reference FILE")

    def open_corpora(self, config: DataConfig) -> tuple[RunningText, RunningText | None]:
        """Open the texts that the recipe names; the windows over the training text overlap."""
        if not config.file:
            raise UserError("The recipe names no text to train on: set [data] file.")
        valid = RunningText.from_file(config.valid_file) if config.valid_file else None
        return RunningText.from_file(config.file, TRAINING_OVERLAP), valid

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold out the end of the text."""
        seed = recipe.training.seed
        hashes = [pair_hash(seed, *pair) for pair in corpus.pairs()]
        held_out = max(1, min(recipe.data.held_out, len(hashes) // HELD_OUT_DIVISOR))
        selected = frozenset(hashes[-held_out:])
        if selected >= set(hashes):
            raise UserError(f"{corpus}: too short to hold out a part for validation; set [data] valid_file.")
        notice = f"No validation file is given: the last {held_out / len(hashes):.1%} of {corpus} is held out."
        return CorpusSplit(
            SplitPart(seed, selected, is_held_out=False), SplitPart(seed, selected, is_held_out=True), held_out, notice
        )

    def tokenize_corpus(
        self,
        corpus: TextPairs,
        tokenizers: tuple[Tokenizer, Tokenizer],
        longest: int,
        part: SplitPart | None,
        on_progress: OnLinesDone,
        *,
        for_training: bool = False,
    ) -> TokenPairs:
        """Tokenize the text and cut it into windows."""
        del for_training
        return tokenize_stream(cast(RunningText, corpus), tokenizers[1], longest, on_lines_done=on_progress, part=part)

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example[str]]:
        """Make an example of each chunk: its first line is the prompt, the rest the reference."""
        return [_prompt_example(text) for _, text in pairs if text.strip()]

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example[str]]:
        """Read the text to predict from the reference file."""
        if source is not None or reference is None:
            raise UserError(
                "A language model is evaluated on the text that it predicts: give --reference, but not --source."
            )
        text = RunningText.from_file(reference)
        text.count_pairs()
        for notice in text.notices():
            on_notice(notice)
        return [Example("", ("".join(chunk for _, chunk in text.pairs()),))]

    def validate_sample(
        self, model: SequenceModel, data: ValidationData, count: int, loss: float, on_progress: OnProgress
    ) -> SampleResult:
        """Convert the loss to bits per character, and continue the first example."""
        tokens = data.pairs.target_tokens[:_MAX_EVALUATED_TOKENS].tolist()
        bits = loss * len(tokens) / max(1, len(model.target_tokenizer.decode(tokens))) / math.log(2)
        examples = data.examples[: min(count, 1)]
        return SampleResult(bits, examples, [_sample_text(model, example.source, on_progress) for example in examples])

    def evaluate(self, model: SequenceModel, data: ValidationData, on_progress: OnProgress) -> Perplexity:
        """Measure the perplexity of the validation text."""
        assert isinstance(model, LanguageModel), f"{type(model)} is not a language model"
        tokens = data.pairs.target_tokens[:_MAX_EVALUATED_TOKENS].tolist()
        text = model.target_tokenizer.decode(tokens)
        return model.perplexity(text, accumulate_progress(on_progress, len(tokens)))


def _prompt_example(text: str) -> Example[str]:
    """Split a chunk into its first line, as the prompt, and the rest."""
    first = text.strip().split("\n", 1)[0][:_PROMPT_CHARACTERS]
    return Example(first, (text.strip()[len(first) :],))


def _sample_text(model: SequenceModel, prompt: str, on_progress: OnProgress) -> str:
    """Continue a text for a fixed number of tokens, with a fixed seed."""
    assert isinstance(model, LanguageModel), f"{type(model)} is not a language model"
    pieces = []
    for piece in model.stream(prompt, length=_SAMPLE_TOKENS, seed=1):
        pieces.append(piece)
        on_progress(len(pieces), _SAMPLE_TOKENS)
    return "".join(pieces)


def _prompt_tokens(tokenizer: Tokenizer, prompt: str) -> tuple[list[int], Tensor | None]:
    """Return the tokens of a prompt, and a mask (V) of the tokens that may follow it, or None if all may.

    The pieces of words include the space before them. A space at the end of a prompt therefore belongs to the next
    piece, and only pieces that begin with a space may follow.
    """
    if prompt.endswith(" ") and (word_starts := _word_start_mask(tokenizer)).any():
        return tokenizer.encode(prompt[:-1]) if prompt[:-1] else [], word_starts
    return tokenizer.encode(prompt) if prompt else [], None


def _word_start_mask(tokenizer: Tokenizer) -> Tensor:
    """Return a mask (V) of the pieces that are a space followed by something."""
    return torch.tensor(
        [
            tokenizer.is_byte_level and piece.startswith(_SPACE_LETTER) and len(piece) > 1
            for piece in tokenizer.vocabulary_pieces
        ]
    )


def _notice_unknown_characters(tokenizer: Tokenizer, prompt: str, tokens: Sequence[int], on_notice: OnNotice) -> None:
    if UNKNOWN not in tokens:
        return
    unknown = list(dict.fromkeys(piece.text for piece in tokenizer.pieces(prompt) if piece.token == UNKNOWN))
    listed = ", ".join(map(repr, unknown[:_MAX_LISTED_CHARACTERS]))
    others = " and others" if len(unknown) > _MAX_LISTED_CHARACTERS else ""
    on_notice(f"Characters of the prompt that are not in the training text become unknown tokens: {listed}{others}.")
