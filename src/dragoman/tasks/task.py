"""What a task is: how to read its data, what its tokens are, how an output is scored, and how it is shown.

To the rest of the program every task is a pair of texts: one that the model reads and one that it should write. A task
turns what people have (a word, a sentence, a tree) into these and back. `tasks.py` has the table of all tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from dragoman.data.arrays import TokenPairs, prepare
from dragoman.data.chunks import Progress
from dragoman.data.corpus import Pair, Pairs
from dragoman.data.split import Part, Split, split_held_out
from dragoman.model.transducer import Transducer
from dragoman.recipe import Data, Decoding, Recipe
from dragoman.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dragoman.tasks.preparation import Prepared
    from dragoman.tasks.translator import Translator

Say = Callable[[str], None]
Heard = Callable[[int, int], None]  # how much is done, of how much


@dataclass(frozen=True)
class Example:
    """Something to do, with the answers that are right, all as a person writes and reads them."""

    source: str
    references: tuple[str, ...]


class Remark(NamedTuple):
    """Something about the data that deserves a second look."""

    text: str
    serious: bool = True


class Trial(NamedTuple):
    """What a model made of some examples, and one number for it."""

    score: float | None = None
    examples: Sequence[Example] = ()
    outputs: Sequence[str] = ()


class Scores(Protocol):
    """What outputs scored: an iterable of values that print with what makes them repeatable."""

    def __iter__(self) -> Iterator[Any]:
        """Yield every score."""


class Task(Protocol):
    """All that is particular about what a model is trained for."""

    name: str  # the verb: "translate"
    noun: str  # what the model then is: "translator"
    doing: str  # "Translating"
    unit: str  # what it learns from, many of them: "pairs"
    measure: str  # what `quick` returns: "BLEU"; nothing if there is no such number
    scored_at_most: int  # validation pairs that the model card tells about
    whole: bool  # whether an input is read as one, however long it is
    goes_on: bool  # whether a model goes on with a text, instead of reading one and writing another
    languages: bool  # whether it leads from one language into another
    asks: str  # what a page asks a person for: "Type or paste a text"

    @property
    def usage(self) -> tuple[str, ...]:
        """Commands for the model card, "{run}" where the run directory stands."""

    @property
    def plain(self) -> bool:
        """Whether the model reads and writes the very texts that a person does."""

    def of(self, data: Data) -> Self:
        """Return the task with what it has to know of a recipe's files."""

    def corpora(self, data: Data) -> tuple[Pairs, Pairs | None]:
        """Name the pairs to train on, and those to validate with if the recipe has some of their own."""

    def look_over(self, corpus: Pairs, valid: Pairs | None) -> Iterator[Remark]:
        """Look for what is wrong with the data before an hour is spent on it."""

    def split(self, corpus: Pairs, recipe: Recipe) -> Split:
        """Hold pairs out for validation."""

    def arrays(
        self, corpus: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], longest: int, part: Part | None, told: Progress
    ) -> TokenPairs:
        """Cut the pairs into tokens."""

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Turn pairs of model texts back into what a person would see."""

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read the files of `dragoman evaluate`."""

    def read(self, text: str) -> str:
        """Turn what a person gives into what the model reads."""

    def shown(self, source: str, output: str) -> str:
        """Turn what the model wrote after reading `source` into what a person wants."""

    def expected(self, source: str, answer: str) -> str:
        """Turn an answer, as a person writes it, into what the model would write after reading `source`."""

    def picture(self, shown: str) -> str | None:
        """Draw what is shown as SVG, where a picture says more than the text."""

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return one number for outputs, quick enough to ask during training."""

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> Scores:
        """Score outputs in every way that the field uses."""

    def tried(self, model: "Translator", data: "Prepared", count: int, loss: float, heard: Heard) -> Trial:
        """Try a model in training on up to so many examples of the validation data, whose loss is known already."""

    def judged(self, model: "Translator", data: "Prepared", heard: Heard) -> Scores:
        """Score a model on the validation data; `heard` is told how much of how much is done."""

    def constrained(self, model: Transducer, tokenizers: tuple[Tokenizer, Tokenizer], how: Decoding) -> Transducer:
        """Return the model with outputs that make no sense ruled out."""

    def words(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Return how many words each piece of the source begins, and each of the target stands for (V)."""


class PlainTask:
    """What most tasks do alike: a text is what the model reads and writes, whole, and nothing is ruled out."""

    whole = True
    goes_on = False
    languages = False
    asks = "Type or paste a text"
    unit = "pairs"
    name: str
    measure: str
    usage: tuple[str, ...] = ()
    scored_at_most = 2000

    @property
    def plain(self) -> bool:
        """Whether texts are left as they are, on the way in and on the way out."""
        return type(self).read is PlainTask.read and type(self).shown is PlainTask.shown

    def of(self, data: Data) -> Self:
        """Return the task as it is: it is the same for all files."""
        del data
        return self

    def look_over(self, corpus: Pairs, valid: Pairs | None) -> Iterator[Remark]:
        """Find nothing wrong: reading the files has refused what is malformed."""
        del corpus, valid
        yield from ()

    def split(self, corpus: Pairs, recipe: Recipe) -> Split:
        """Hold some pairs out, equal ones together."""
        return split_held_out(corpus, recipe.data.held_out, recipe.training.seed)

    def arrays(
        self, corpus: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], longest: int, part: Part | None, told: Progress
    ) -> TokenPairs:
        """Cut both sides into pieces."""
        return prepare(corpus, *tokenizers, longest, progress=told, keep=part)

    def read(self, text: str) -> str:
        """Give the model the text as it is."""
        return text

    def shown(self, source: str, output: str) -> str:
        """Show what the model wrote as it is."""
        del source
        return output

    def expected(self, source: str, answer: str) -> str:
        """Take an answer as it is."""
        del source
        return answer

    def picture(self, shown: str) -> str | None:
        """Draw nothing."""
        del shown
        return None

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return one number for outputs; a task that is tried in its own way, as language models are, needs none."""
        raise NotImplementedError(f"{self.name} has no quick score of outputs")

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> Scores:
        """Score outputs; a task that judges in a way of its own, as language models do, needs none."""
        raise NotImplementedError(f"{self.name} does not score outputs")

    def tried(self, model: "Translator", data: "Prepared", count: int, loss: float, heard: Heard) -> Trial:
        """Let the model do the first examples, greedily."""
        del loss
        examples = data.examples[:count]
        if not examples:
            return Trial()
        outputs = model.translate([each.source for each in examples], beam=1, progress=counted(heard, len(examples)))
        return Trial(self.quick(examples, outputs), examples, outputs)

    def judged(self, model: "Translator", data: "Prepared", heard: Heard) -> Scores:
        """Let the model do all examples, and score what it did."""
        sources = [example.source for example in data.examples]
        return self.score(data.examples, model.translate(sources, progress=counted(heard, len(sources))))

    def constrained(self, model: Transducer, tokenizers: tuple[Tokenizer, Tokenizer], how: Decoding) -> Transducer:
        """Rule nothing out."""
        del tokenizers, how
        return model

    def words(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Count nothing; the recipe has refused a guide that would."""
        return torch.zeros(len(source), dtype=torch.long), torch.zeros(len(target), dtype=torch.long)


def counted(heard: Heard, total: int) -> Callable[[int], None]:
    """Return a function that is told how many more are done, and passes on how many are by then."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        heard(done, total)

    return count
