"""What a task is: how to read its data, what its tokens are, how an output is scored, and how it is shown.

To the rest of the program every task is a pair of texts: one that the model reads and one that it should write. A task
turns what people have (a word, a sentence, a tree) into these and back. `tasks.py` has the table of all tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from dragoman.data.arrays import OnLinesDone, TokenPairs, tokenize_corpus
from dragoman.data.corpus import Pair, TextPairs
from dragoman.data.split import CorpusSplit, SplitPart, split_held_out
from dragoman.models.transducer import IncrementalDecoder
from dragoman.recipe import DataConfig, DecodingConfig, Recipe
from dragoman.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

OnNotice = Callable[[str], None]
OnProgress = Callable[[int, int], None]  # how much is done, of how much


@dataclass(frozen=True)
class Example:
    """Something to do, with the answers that are right, all as a person writes and reads them."""

    source: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class ValidationData:
    """The validation data as a task sees it: as examples to decode and as token arrays."""

    examples: list[Example]
    pairs: TokenPairs


class DataWarning(NamedTuple):
    """Something about the data that deserves a second look."""

    text: str
    serious: bool = True


class SampleResult(NamedTuple):
    """What a model made of some examples, and one number for it."""

    score: float | None = None
    examples: Sequence[Example] = ()
    outputs: Sequence[str] = ()


class EvaluationScores(Protocol):
    """What outputs scored: an iterable of values that print with what makes them repeatable."""

    def __iter__(self) -> Iterator[Any]:
        """Yield every score."""


class Task(Protocol):
    """All that is particular about what a model is trained for."""

    name: str  # the verb: "translate"
    noun: str  # what the model then is: "translator"
    gerund: str  # "Translating"
    unit: str  # what it learns from, many of them: "pairs"
    validation_metric: str  # what `quick` returns: "BLEU"; nothing if there is no such number
    max_scored_examples: int  # validation pairs that the model card tells about
    never_split: bool  # whether an input is read as one, however long it is
    is_language_model: bool  # whether a model goes on with a text, instead of reading one and writing another
    has_language_pair: bool  # whether it leads from one language into another
    model_class: str  # "module:class" of the models of this task
    input_hint: str  # what a page asks a person for: "Type or paste a text"

    @property
    def usage_examples(self) -> tuple[str, ...]:
        """Commands for the model card, "{run}" where the run directory stands."""

    @property
    def raw_text_io(self) -> bool:
        """Whether the model reads and writes the very texts that a person does."""

    def configure(self, config: DataConfig) -> Self:
        """Return the task with what it has to know of a recipe's files."""

    def open_corpora(self, config: DataConfig) -> tuple[TextPairs, TextPairs | None]:
        """Name the pairs to train on, and those to validate with if the recipe has some of their own."""

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Look for what is wrong with the data before an hour is spent on it."""

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold pairs out for validation."""

    def tokenize_corpus(
        self,
        corpus: TextPairs,
        tokenizers: tuple[Tokenizer, Tokenizer],
        longest: int,
        part: SplitPart | None,
        on_progress: OnLinesDone,
    ) -> TokenPairs:
        """Cut the pairs into tokens."""

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example]:
        """Turn pairs of model texts back into what a person would see."""

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example]:
        """Read the files of `dragoman evaluate`."""

    def to_model_input(self, text: str) -> str:
        """Turn what a person gives into what the model reads."""

    def from_model_output(self, source: str, output: str) -> str:
        """Turn what the model wrote after reading `source` into what a person wants."""

    def to_model_target(self, source: str, answer: str) -> str:
        """Turn an answer, as a person writes it, into what the model would write after reading `source`."""

    def draw_output(self, text: str) -> str | None:
        """Draw what is shown as SVG, where a picture says more than the text."""

    def validation_score(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return one number for outputs, quick enough to ask during training."""

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> EvaluationScores:
        """Score outputs in every way that the field uses."""

    def validate_sample(
        self, model: "SequenceModel", data: ValidationData, count: int, loss: float, on_progress: OnProgress
    ) -> SampleResult:
        """Try a model in training on up to so many examples of the validation data, whose loss is known already."""

    def evaluate(self, model: "SequenceModel", data: ValidationData, on_progress: OnProgress) -> EvaluationScores:
        """Score a model on the validation data; `heard` is told how much of how much is done."""

    def constrain(
        self, model: IncrementalDecoder, tokenizers: tuple[Tokenizer, Tokenizer], config: DecodingConfig
    ) -> IncrementalDecoder:
        """Return the model with outputs that make no sense ruled out."""

    def word_counts(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Return how many words each piece of the source begins, and each of the target stands for (V)."""


class BaseTask:
    """What most tasks do alike: a text is what the model reads and writes, whole, and nothing is ruled out."""

    never_split = True
    is_language_model = False
    has_language_pair = False
    model_class = "dragoman.tasks.translate:Translator"
    input_hint = "Type or paste a text"
    unit = "pairs"
    name: str
    validation_metric: str
    usage_examples: tuple[str, ...] = ()
    max_scored_examples = 2000

    @property
    def raw_text_io(self) -> bool:
        """Whether texts are left as they are, on the way in and on the way out."""
        return (
            type(self).to_model_input is BaseTask.to_model_input
            and type(self).from_model_output is BaseTask.from_model_output
        )

    def configure(self, config: DataConfig) -> Self:
        """Return the task as it is: it is the same for all files."""
        del config
        return self

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Find nothing wrong: reading the files has refused what is malformed."""
        del corpus, valid
        yield from ()

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold some pairs out, equal ones together."""
        return split_held_out(corpus, recipe.data.held_out, recipe.training.seed)

    def tokenize_corpus(
        self,
        corpus: TextPairs,
        tokenizers: tuple[Tokenizer, Tokenizer],
        longest: int,
        part: SplitPart | None,
        on_progress: OnLinesDone,
    ) -> TokenPairs:
        """Cut both sides into pieces."""
        return tokenize_corpus(corpus, *tokenizers, longest, on_lines_done=on_progress, part=part)

    def to_model_input(self, text: str) -> str:
        """Give the model the text as it is."""
        return text

    def from_model_output(self, source: str, output: str) -> str:
        """Show what the model wrote as it is."""
        del source
        return output

    def to_model_target(self, source: str, answer: str) -> str:
        """Take an answer as it is."""
        del source
        return answer

    def draw_output(self, text: str) -> str | None:
        """Draw nothing."""
        del text
        return None

    def validation_score(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return one number for outputs; a task that is tried in its own way, as language models are, needs none."""
        raise NotImplementedError(f"{self.name} has no quick score of outputs")

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> EvaluationScores:
        """Score outputs; a task that judges in a way of its own, as language models do, needs none."""
        raise NotImplementedError(f"{self.name} does not score outputs")

    def validate_sample(
        self, model: "SequenceModel", data: ValidationData, count: int, loss: float, on_progress: OnProgress
    ) -> SampleResult:
        """Let the model do the first examples, greedily."""
        del loss
        examples = data.examples[:count]
        if not examples:
            return SampleResult()
        outputs = model.predict(
            [each.source for each in examples], beam=1, progress=accumulate_progress(on_progress, len(examples))
        )
        return SampleResult(self.validation_score(examples, outputs), examples, outputs)

    def evaluate(self, model: "SequenceModel", data: ValidationData, on_progress: OnProgress) -> EvaluationScores:
        """Let the model do all examples, and score what it did."""
        sources = [example.source for example in data.examples]
        return self.score(
            data.examples, model.predict(sources, progress=accumulate_progress(on_progress, len(sources)))
        )

    def constrain(
        self, model: IncrementalDecoder, tokenizers: tuple[Tokenizer, Tokenizer], config: DecodingConfig
    ) -> IncrementalDecoder:
        """Rule nothing out."""
        del tokenizers, config
        return model

    def word_counts(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Count nothing; the recipe has refused a guide that would."""
        return torch.zeros(len(source), dtype=torch.long), torch.zeros(len(target), dtype=torch.long)


def accumulate_progress(on_progress: OnProgress, total: int) -> Callable[[int], None]:
    """Return a function that is told how many more are done, and passes on how many are by then."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        on_progress(done, total)

    return count
