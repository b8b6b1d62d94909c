"""Generation: a language model goes on with a text. It is trained on running text, and reads nothing else."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from dragoman.data.arrays import OnLinesDone, TokenPairs
from dragoman.data.corpus import Pair, TextPairs
from dragoman.data.running_text import RunningText
from dragoman.data.split import HELD_OUT_DIVISOR, CorpusSplit, SplitPart, pair_hash
from dragoman.data.token_windows import TRAINING_OVERLAP, tokenize_stream
from dragoman.decoding.generate import SamplingOptions
from dragoman.errors import UserError
from dragoman.evaluation.perplexity import Perplexity
from dragoman.recipe import DataConfig, Recipe
from dragoman.tasks.continuation import ContinuationStream, measure_perplexity
from dragoman.tasks.task import (
    BaseTask,
    Example,
    OnNotice,
    OnProgress,
    SampleResult,
    ValidationData,
    accumulate_progress,
)
from dragoman.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dragoman.tasks.translator import Translator

_PROMPT_CHARACTERS = 80  # of the validation text, with which that text begins
_SAMPLE_TOKENS = 200  # of a text that is written at each validation
_MAX_EVALUATED_TOKENS = 1_000_000  # of the validation text that is predicted for the model card


class GenerationTask(BaseTask):
    """From the beginning of a text to what may follow."""

    name, noun, gerund, validation_metric = "generate", "language model", "Predicting", "bits per character"
    unit = "stretches"
    is_language_model = True
    input_hint = "Begin a text"
    usage_examples = ('dragoman generate {run} "…"', "dragoman evaluate {run} --reference FILE")

    def open_corpora(self, config: DataConfig) -> tuple[RunningText, RunningText | None]:
        """Find the texts that the recipe names; of the one to train on, stretches overlap."""
        if not config.file:
            raise UserError("The recipe names no text to train on: set [data] file.")
        valid = RunningText.from_file(config.valid_file) if config.valid_file else None
        return RunningText.from_file(config.file, TRAINING_OVERLAP), valid

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold out the end of the text."""
        seed = recipe.training.seed
        hashes = [pair_hash(seed, *pair) for pair in corpus.pairs()]
        held_out = max(1, min(recipe.data.held_out, len(hashes) // HELD_OUT_DIVISOR))
        chosen = frozenset(hashes[-held_out:])
        if chosen >= set(hashes):
            raise UserError(f"{corpus}: too short to hold some of it out for validation; name a [data] valid_file.")
        notice = f"No validation file is given: the last {held_out / len(hashes):.1%} of {corpus} are held out."
        return CorpusSplit(
            SplitPart(seed, chosen, is_held_out=False), SplitPart(seed, chosen, is_held_out=True), held_out, notice
        )

    def tokenize_corpus(
        self,
        corpus: TextPairs,
        tokenizers: tuple[Tokenizer, Tokenizer],
        longest: int,
        part: SplitPart | None,
        on_progress: OnLinesDone,
    ) -> TokenPairs:
        """Cut the text into pieces, and lay stretches over it."""
        return tokenize_stream(cast(RunningText, corpus), tokenizers[1], longest, on_lines_done=on_progress, part=part)

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example]:
        """Each chunk is an example: how it begins, and how it goes on."""
        return [_prompt_example(text) for _, text in pairs if text.strip()]

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example]:
        """Read a text to predict; it is the one thing that is needed."""
        if source is not None or reference is None:
            raise UserError("A language model is scored on a text that it predicts: give --reference, and no --source.")
        text = RunningText.from_file(reference)
        text.count_pairs()
        for notice in text.notices():
            on_notice(notice)
        return [Example("", ("".join(chunk for _, chunk in text.pairs()),))]

    def validate_sample(
        self, model: "Translator", data: ValidationData, count: int, loss: float, on_progress: OnProgress
    ) -> SampleResult:
        """Turn the loss into bits per character, and go on with the first example."""
        tokens = data.pairs.target_tokens[:_MAX_EVALUATED_TOKENS].tolist()
        bits = loss * len(tokens) / max(1, len(model.target_tokenizer.decode(tokens))) / math.log(2)
        examples = data.examples[: min(count, 1)]
        return SampleResult(bits, examples, [_sample_text(model, each.source, on_progress) for each in examples])

    def evaluate(self, model: "Translator", data: ValidationData, on_progress: OnProgress) -> Perplexity:
        """Predict the validation text, with half a window of context or more."""
        tokens = data.pairs.target_tokens[:_MAX_EVALUATED_TOKENS].tolist()
        text = model.target_tokenizer.decode(tokens)
        return measure_perplexity(model, text, accumulate_progress(on_progress, len(tokens)))


def _prompt_example(text: str) -> Example:
    """Divide a chunk into a line to begin with, and what follows it."""
    lines = text.strip().split("\n", 1)
    first = lines[0][:_PROMPT_CHARACTERS]
    return Example(first, (text.strip()[len(first) :],))


def _sample_text(model: "Translator", prompt: str, on_progress: OnProgress) -> str:
    """Go on with a text for a while, always by the same chances."""
    pieces = []
    for piece in ContinuationStream(model, prompt, SamplingOptions(seed=1), length=_SAMPLE_TOKENS):
        pieces.append(piece)
        on_progress(len(pieces), _SAMPLE_TOKENS)
    return "".join(pieces)
