"""What a task is.

To the layers below, every task is a pair of texts: one that the model reads and one that it writes. A task converts
what people read and write (a word, a sentence, a tree) to these and back. It has three parts, each a base class with
defaults: how its data is read (`DataReader`), what a person sees (`TextFormat`), and how its models are scored
(`Scorer`). A language model is a `Task`; every other task is a `TransductionTask`. `presets.TASKS` lists them all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from dragoman.data.arrays import OnLinesDone, TokenPairs, tokenize_corpus
from dragoman.data.corpus import Pair, TextPairs
from dragoman.data.corpus_check import DataReport
from dragoman.data.split import CorpusSplit, SplitPart, split_held_out
from dragoman.errors import UserError
from dragoman.evaluation.score import Score
from dragoman.models.transducer import IncrementalDecoder
from dragoman.recipe import DataConfig, DecodingConfig, Recipe
from dragoman.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

OnNotice = Callable[[str], None]
OnProgress = Callable[[int, int], None]  # number done, total


_ExampleSource = TypeVar("_ExampleSource")


@dataclass(frozen=True)
class Example(Generic[_ExampleSource]):
    """An input with its correct outputs, as a person sees them; the type of the input is the task's own."""

    source: _ExampleSource
    references: tuple[str, ...]


@dataclass(frozen=True)
class ValidationData:
    """The validation data as a task sees it: as examples to decode and as token arrays."""

    examples: list[Example[Any]]
    pairs: TokenPairs


class DataWarning(NamedTuple):
    """A possible problem of the data."""

    text: str
    serious: bool = True


class SampleResult(NamedTuple):
    """The outputs of a model for some validation examples, and their score."""

    score: float | None = None
    examples: Sequence[Example[Any]] = ()
    outputs: Sequence[str] = ()


class EvaluationScores(Protocol):
    """All scores of a set of outputs; each prints with its signature."""

    def __iter__(self) -> Iterator[Score]:
        """Yield every score."""


class DataReader(ABC):
    """How the data of a task is read."""

    unit = "pair"  # noun for what the model is trained on
    reads_signals = False  # whether a source is a file with a signal, such as a recording, and not text

    def configure(self, recipe: Recipe) -> Self:
        """Return the task configured for a recipe; most tasks do not depend on it."""
        del recipe
        return self

    @abstractmethod
    def open_corpora(self, config: DataConfig) -> tuple[TextPairs, TextPairs | None]:
        """Return the training pairs, and the validation pairs if the recipe names files for them."""

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Yield possible problems of the data before training starts; malformed files raise when they are read."""
        del corpus, valid
        yield from ()

    def report_data(self, corpus: TextPairs, valid: TextPairs | None, on_progress: OnProgress) -> DataReport:
        """Return what `dragoman check` reports: everything suspicious about the data, which may take long to find."""
        del corpus, valid, on_progress
        raise UserError(
            f"check reads parallel text and recordings; `dragoman train` checks {self.unit}s before it trains."
        )

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold out some pairs for validation, equal ones together."""
        return split_held_out(corpus, recipe.data.held_out, recipe.training.seed, unit=self.unit)

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
        """Return the pairs as token arrays; a task may vary what it is trained on."""
        del for_training
        return tokenize_corpus(corpus, *tokenizers, longest, on_lines_done=on_progress, part=part)

    def find_source(self, name: str, config: DataConfig) -> str:
        """Return the input that the page of a training asks for: what is typed, or a signal of the run's own data."""
        del config
        return name

    @abstractmethod
    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example[Any]]:
        """Convert pairs of model texts to examples."""

    @abstractmethod
    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example[Any]]:
        """Read the files of `dragoman evaluate`."""


class TextFormat:
    """What a person sees of a task, and how it becomes what the model reads and writes: by default the same text."""

    name: str  # the verb: "translate"
    noun: str  # what a model is called: "translator"
    gerund: str  # "Translating"
    model_class = "dragoman.tasks.translate:Translator"  # "module:class" of the task's models
    input_hint = "Type or paste text"  # the placeholder of a page's input
    usage_examples: tuple[str, ...] = ()  # commands for the model card, with "{run}" for the run directory
    never_split = True  # whether an input is read as a whole, however long it is
    is_language_model = False  # whether a model continues a text instead of reading one and writing another
    has_language_pair = False  # whether source and target are in different languages

    @property
    def raw_text_io(self) -> bool:
        """Whether the model reads and writes the same texts as a person."""
        return (
            type(self).to_model_input is TextFormat.to_model_input
            and type(self).from_model_output is TextFormat.from_model_output
        )

    def to_model_input(self, text: str) -> str:
        """Convert what a person enters to what the model reads."""
        return text

    def split_label(self, text: str) -> tuple[str, str]:
        """Return the label that the model reads before each sentence, by default none, and the rest of its input."""
        return "", text

    def to_model_target(self, source: str, answer: str) -> str:
        """Convert a correct output to what the model should write after reading `source`."""
        del source
        return answer

    def from_model_output(self, source: str, output: str) -> str:
        """Convert what the model wrote after reading `source` to what a person reads."""
        del source
        return output

    def draw_output(self, text: str) -> str | None:
        """Return an SVG drawing of an output, or None if the task has none."""
        del text
        return None

    def constrain(
        self, model: IncrementalDecoder, tokenizers: tuple[Tokenizer, Tokenizer], config: DecodingConfig
    ) -> IncrementalDecoder:
        """Return the model with malformed outputs ruled out."""
        del tokenizers, config
        return model

    def word_counts(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Return the number of words that each source token begins, and that each target token is for (V).

        The next-word feature counts them; recipes of other tasks than parsing refuse it, so that zeros are enough.
        """
        return torch.zeros(len(source), dtype=torch.long), torch.zeros(len(target), dtype=torch.long)


class Scorer(ABC):
    """How a model of a task is scored."""

    validation_metric: str  # the name of the score during training: "BLEU"
    higher_is_better = True  # whether a higher score of this metric is better
    max_scored_examples = 2000  # validation examples that are scored for the model card

    @abstractmethod
    def validate_sample(
        self, model: "SequenceModel", data: ValidationData, count: int, loss: float, on_progress: OnProgress
    ) -> SampleResult:
        """Score a model in training on up to `count` validation examples; `loss` is its validation loss."""

    @abstractmethod
    def evaluate(self, model: "SequenceModel", data: ValidationData, on_progress: OnProgress) -> EvaluationScores:
        """Return all scores of a model on the validation data."""


class Task(DataReader, TextFormat, Scorer):
    """A task: how its data is read, what a person sees, and how its models are scored."""


class TransductionTask(Task):
    """A task whose models read a source and write an output, which is compared with references."""

    @abstractmethod
    def validation_score(self, examples: Sequence[Example[Any]], outputs: Sequence[str]) -> float:
        """Return one score of outputs that is fast enough for validation during training."""

    @abstractmethod
    def score(self, examples: Sequence[Example[Any]], outputs: Sequence[str]) -> EvaluationScores:
        """Return all scores of outputs."""

    def validate_sample(
        self, model: "SequenceModel", data: ValidationData, count: int, loss: float, on_progress: OnProgress
    ) -> SampleResult:
        """Score the greedy outputs for the first examples."""
        del loss
        examples = data.examples[:count]
        if not examples:
            return SampleResult()
        progress = accumulate_progress(on_progress, len(examples))
        outputs = model.predict([example.source for example in examples], beam=1, progress=progress)
        return SampleResult(self.validation_score(examples, outputs), examples, outputs)

    def evaluate(self, model: "SequenceModel", data: ValidationData, on_progress: OnProgress) -> EvaluationScores:
        """Return all scores of the outputs for all examples."""
        sources = [example.source for example in data.examples]
        outputs = model.predict(sources, progress=accumulate_progress(on_progress, len(sources)))
        return self.score(data.examples, outputs)


def accumulate_progress(on_progress: OnProgress, total: int) -> Callable[[int], None]:
    """Return a callback that takes numbers of newly finished items and reports their sum to `on_progress`."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    return add
