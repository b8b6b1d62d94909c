"""Generation: a language model goes on with a text. It is trained on running text, and reads nothing else."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from dragoman.data.arrays import TokenPairs
from dragoman.data.chunks import Progress
from dragoman.data.corpus import Pair, Pairs
from dragoman.data.running_text import RunningText
from dragoman.data.split import LARGEST_SHARE, Part, Split, pair_hash
from dragoman.data.stream import OVERLAP, prepare_stream
from dragoman.decoding.generation import Draw
from dragoman.errors import UserError
from dragoman.evaluation.perplexity import Perplexity
from dragoman.recipe import Data, Recipe
from dragoman.tasks.continuation import Continuing, perplexity
from dragoman.tasks.task import Example, Heard, PlainTask, Say, Trial, counted
from dragoman.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dragoman.tasks.preparation import Prepared
    from dragoman.tasks.translator import Translator

PROMPT_CHARACTERS = 80  # of the validation text, with which that text begins
SHOWN_TOKENS = 200  # of a text that is written at each validation
MOST_TOKENS = 1_000_000  # of the validation text that is predicted for the model card


class Generate(PlainTask):
    """From the beginning of a text to what may follow."""

    name, noun, doing, measure = "generate", "language model", "Predicting", "bits per character"
    unit = "stretches"
    goes_on = True
    asks = "Begin a text"
    usage = ('dragoman generate {run} "…"', "dragoman evaluate {run} --reference FILE")

    def corpora(self, data: Data) -> tuple[RunningText, RunningText | None]:
        """Find the texts that the recipe names; of the one to train on, stretches overlap."""
        if not data.file:
            raise UserError("The recipe names no text to train on: set [data] file.")
        valid = RunningText.of(data.valid_file) if data.valid_file else None
        return RunningText.of(data.file, OVERLAP), valid

    def split(self, corpus: Pairs, recipe: Recipe) -> Split:
        """Hold out the end of the text."""
        seed = recipe.training.seed
        hashes = [pair_hash(seed, *pair) for pair in corpus.pairs()]
        held_out = max(1, min(recipe.data.held_out, len(hashes) // LARGEST_SHARE))
        chosen = frozenset(hashes[-held_out:])
        if chosen >= set(hashes):
            raise UserError(f"{corpus}: too short to hold some of it out for validation; name a [data] valid_file.")
        notice = f"No validation file is given: the last {held_out / len(hashes):.1%} of {corpus} are held out."
        return Split(Part(seed, chosen, held_out=False), Part(seed, chosen, held_out=True), held_out, notice)

    def arrays(
        self, corpus: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], longest: int, part: Part | None, told: Progress
    ) -> TokenPairs:
        """Cut the text into pieces, and lay stretches over it."""
        return prepare_stream(cast(RunningText, corpus), tokenizers[1], longest, progress=told, keep=part)

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Each chunk is an example: how it begins, and how it goes on."""
        return [begun(text) for _, text in pairs if text.strip()]

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read a text to predict; it is the one thing that is needed."""
        if source is not None or reference is None:
            raise UserError("A language model is scored on a text that it predicts: give --reference, and no --source.")
        text = RunningText.of(reference)
        text.check_counts()
        for notice in text.notices():
            say(notice)
        return [Example("", ("".join(chunk for _, chunk in text.pairs()),))]

    def tried(self, model: "Translator", data: "Prepared", count: int, loss: float, heard: Heard) -> Trial:
        """Turn the loss into bits per character, and go on with the first example."""
        tokens = data.valid.target_tokens[:MOST_TOKENS].tolist()
        bits = loss * len(tokens) / max(1, len(model.target_tokenizer.decode(tokens))) / math.log(2)
        examples = data.examples[: min(count, 1)]
        return Trial(bits, examples, [written(model, each.source, heard) for each in examples])

    def judged(self, model: "Translator", data: "Prepared", heard: Heard) -> Perplexity:
        """Predict the validation text, with half a window of context or more."""
        tokens = data.valid.target_tokens[:MOST_TOKENS].tolist()
        text = model.target_tokenizer.decode(tokens)
        return perplexity(model, text, counted(heard, len(tokens)))


def begun(text: str) -> Example:
    """Divide a chunk into a line to begin with, and what follows it."""
    lines = text.strip().split("\n", 1)
    first = lines[0][:PROMPT_CHARACTERS]
    return Example(first, (text.strip()[len(first) :],))


def written(model: "Translator", prompt: str, heard: Heard) -> str:
    """Go on with a text for a while, always by the same chances."""
    pieces = []
    for piece in Continuing(model, prompt, Draw(seed=1), length=SHOWN_TOKENS):
        pieces.append(piece)
        heard(len(pieces), SHOWN_TOKENS)
    return "".join(pieces)
