"""What a task is.

To the layers below, every task is a pair of texts: one that the model reads and one that it writes. A task converts
what people read and write (a word, a sentence, a tree) to these and back. It has three parts, each a protocol below:
how its data is read (`DataReader`), what a person sees (`TextFormat`), and how outputs are scored (`Scorer`).
`BaseTask` has defaults for most of it; `registry.py` is the table of all tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from dragoman.data.arrays import OnLinesDone, TokenPairs, tokenize_corpus
from dragoman.data.corpus import Pair, TextPairs
from dragoman.data.split import CorpusSplit, SplitPart, split_held_out
from dragoman.evaluation.score import Score
from dragoman.models.transducer import IncrementalDecoder
from dragoman.recipe import DataConfig, DecodingConfig, Recipe
from dragoman.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

OnNotice = Callable[[str], None]
OnProgress = Callable[[int, int], None]  # number done, total


@dataclass(frozen=True)
class Example:
    """An input with its correct outputs, as a person writes and reads them."""

    source: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class ValidationData:
    """The validation data as a task sees it: as examples to decode and as token arrays."""

    examples: list[Example]
    pairs: TokenPairs


class DataWarning(NamedTuple):
    """A possible problem of the data."""

    text: str
    serious: bool = True


class SampleResult(NamedTuple):
    """The outputs of a model for some validation examples, and their score."""

    score: float | None = None
    examples: Sequence[Example] = ()
    outputs: Sequence[str] = ()


class EvaluationScores(Protocol):
    """All scores of a set of outputs; each prints with its signature."""

    def __iter__(self) -> Iterator[Score]:
        """Yield every score."""


class DataReader(Protocol):
    """How the data of a task is read."""

    unit: str  # noun for what the model is trained on: "pair"

    def configure(self, config: DataConfig) -> Self:
        """Return the task configured for a recipe's files."""

    def open_corpora(self, config: DataConfig) -> tuple[TextPairs, TextPairs | None]:
        """Return the training pairs, and the validation pairs if the recipe names files for them."""

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Yield possible problems of the data, before training starts."""

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold out pairs for validation."""

    def tokenize_corpus(
        self,
        corpus: TextPairs,
        tokenizers: tuple[Tokenizer, Tokenizer],
        longest: int,
        part: SplitPart | None,
        on_progress: OnLinesDone,
    ) -> TokenPairs:
        """Return the pairs as token arrays."""

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example]:
        """Convert pairs of model texts to examples."""

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example]:
        """Read the files of `dragoman evaluate`."""


class TextFormat(Protocol):
    """What a person sees of a task, and how it becomes what the model reads and writes."""

    name: str  # the verb: "translate"
    noun: str  # what a model is called: "translator"
    gerund: str  # "Translating"
    input_hint: str  # the placeholder of a page's input: "Type or paste text"
    model_class: str  # "module:class" of the task's models
    never_split: bool  # whether an input is read as a whole, however long it is
    is_language_model: bool  # whether a model continues a text instead of reading one and writing another
    has_language_pair: bool  # whether source and target are in different languages

    @property
    def usage_examples(self) -> tuple[str, ...]:
        """Commands for the model card, with "{run}" for the run directory."""

    @property
    def raw_text_io(self) -> bool:
        """Whether the model reads and writes the same texts as a person."""

    def to_model_input(self, text: str) -> str:
        """Convert what a person enters to what the model reads."""

    def to_model_target(self, source: str, answer: str) -> str:
        """Convert a correct output to what the model should write after reading `source`."""

    def from_model_output(self, source: str, output: str) -> str:
        """Convert what the model wrote after reading `source` to what a person reads."""

    def draw_output(self, text: str) -> str | None:
        """Return an SVG drawing of an output, or None if the task has none."""

    def constrain(
        self, model: IncrementalDecoder, tokenizers: tuple[Tokenizer, Tokenizer], config: DecodingConfig
    ) -> IncrementalDecoder:
        """Return the model with malformed outputs ruled out."""

    def word_counts(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Return the number of words that each source piece begins, and that each target piece is for (V)."""


class Scorer(Protocol):
    """How the outputs of a task are scored."""

    validation_metric: str  # the name of `validation_score`: "BLEU"
    max_scored_examples: int  # validation examples that are scored for the model card

    def validation_score(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return one score of outputs that is fast enough for validation during training."""

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> EvaluationScores:
        """Return all scores of outputs."""

    def validate_sample(
        self, model: "SequenceModel", data: ValidationData, count: int, loss: float, on_progress: OnProgress
    ) -> SampleResult:
        """Score a model in training on up to `count` validation examples; `loss` is its validation loss."""

    def evaluate(self, model: "SequenceModel", data: ValidationData, on_progress: OnProgress) -> EvaluationScores:
        """Return all scores of a model on the validation data."""


class Task(DataReader, TextFormat, Scorer, Protocol):
    """A task: how its data is read, what a person sees, and how outputs are scored."""


class BaseTask:
    """Defaults for most tasks: the model reads and writes whole texts unchanged, without constraints."""

    name: str
    model_class = "dragoman.tasks.translate:Translator"
    unit = "pair"
    input_hint = "Type or paste text"
    usage_examples: tuple[str, ...] = ()
    never_split = True
    is_language_model = False
    has_language_pair = False
    validation_metric: str
    max_scored_examples = 2000

    @property
    def raw_text_io(self) -> bool:
        """Whether the model reads and writes the same texts as a person."""
        return (
            type(self).to_model_input is BaseTask.to_model_input
            and type(self).from_model_output is BaseTask.from_model_output
        )

    def configure(self, config: DataConfig) -> Self:
        """Return the task itself, which does not depend on the files."""
        del config
        return self

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Yield nothing: malformed files raise when they are read."""
        del corpus, valid
        yield from ()

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold out some pairs, equal ones together."""
        return split_held_out(corpus, recipe.data.held_out, recipe.training.seed)

    def tokenize_corpus(
        self,
        corpus: TextPairs,
        tokenizers: tuple[Tokenizer, Tokenizer],
        longest: int,
        part: SplitPart | None,
        on_progress: OnLinesDone,
    ) -> TokenPairs:
        """Tokenize both sides."""
        return tokenize_corpus(corpus, *tokenizers, longest, on_lines_done=on_progress, part=part)

    def to_model_input(self, text: str) -> str:
        """Return the text unchanged."""
        return text

    def to_model_target(self, source: str, answer: str) -> str:
        """Return the answer unchanged."""
        del source
        return answer

    def from_model_output(self, source: str, output: str) -> str:
        """Return the output unchanged."""
        del source
        return output

    def draw_output(self, text: str) -> str | None:
        """Return None: there is no drawing."""
        del text
        return None

    def constrain(
        self, model: IncrementalDecoder, tokenizers: tuple[Tokenizer, Tokenizer], config: DecodingConfig
    ) -> IncrementalDecoder:
        """Return the model unchanged."""
        del tokenizers, config
        return model

    def word_counts(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Return zeros; the recipe refuses the next-word feature, which counts words, for these tasks."""
        return torch.zeros(len(source), dtype=torch.long), torch.zeros(len(target), dtype=torch.long)

    def validation_score(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return one score of outputs; a task that overrides `validate_sample` needs none."""
        raise NotImplementedError(f"{self.name} has no validation score of outputs")

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> EvaluationScores:
        """Return all scores of outputs; a task that overrides `evaluate` needs none."""
        raise NotImplementedError(f"{self.name} does not score outputs")

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
