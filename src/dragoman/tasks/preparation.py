"""From files to vocabularies and token arrays, with a look at the data on the way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dragoman.data.arrays import TokenPairs
from dragoman.data.corpus import Pairs, pairs_at
from dragoman.data.split import Part
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.events import Listen, Working
from dragoman.tasks.task import Example
from dragoman.tasks.tasks import task_of
from dragoman.text.tokenizer import Tokenizer
from dragoman.training.session import Notice


def corpora(recipe: Recipe) -> tuple[Pairs, Pairs | None]:
    """Find the files that the recipe names, before anything is touched."""
    corpus, valid = task_of(recipe).corpora(recipe.data)
    for each in filter(None, (corpus, valid)):
        each.check_counts()
    return corpus, valid


@dataclass(frozen=True)
class Prepared:
    """The data of a training as token arrays, and some of the validation data as people see it."""

    source: Tokenizer
    target: Tokenizer
    train: TokenPairs
    valid: TokenPairs
    examples: list[Example]  # of the validation data, to try the model on
    origin: dict[str, str]  # the fingerprints of all this was made from


def prepared(run: Run, recipe: Recipe, corpus: Pairs, valid: Pairs | None, listen: Listen) -> Prepared:
    """Look the data over, learn the vocabulary, and turn text into token arrays."""
    task = task_of(recipe)
    for notice in (*corpus.notices(), *(valid.notices() if valid else ())):
        listen(Notice(notice))
    for remark in task.look_over(corpus, valid):
        listen(Notice(*remark))
    split = None if valid else task.split(corpus, recipe)
    if split:
        usual = f"No validation files are given: {split.held_out:,} pairs of the training text are held out."
        listen(Notice(split.notice or usual))
    source, target = tokenizers(run, recipe, corpus, split.training if split else None, listen)
    longest = recipe.data.longest

    def arrays(texts: Pairs, part: Part | None, what: str) -> TokenPairs:
        progress = told(listen, what, texts.check_counts())
        found = task.arrays(texts, (source, target), longest, part, progress)
        tell_dropped(found, texts, longest, listen)
        return found

    train_pairs = arrays(corpus, split.training if split else None, "Cutting the training text into pieces")
    valid_pairs = arrays(
        valid or corpus, split.validation if split else None, "Cutting the validation text into pieces"
    )
    examples = task.examples_of(pairs_at(valid or corpus, valid_pairs.line_numbers[: task.scored_at_most]))
    made_from = {f"the training text ({corpus})": corpus.fingerprint()}
    if valid:
        made_from[f"the validation text ({valid})"] = valid.fingerprint()
    for path, tokenizer in zip(run.tokenizer_files(recipe.tokenizer.joint), (source, target), strict=False):
        made_from[f"the vocabulary ({path.name})"] = tokenizer.fingerprint
    return Prepared(source, target, train_pairs, valid_pairs, examples, made_from)


def tokenizers(
    run: Run, recipe: Recipe, corpus: Pairs, part: Part | None, listen: Listen
) -> tuple[Tokenizer, Tokenizer]:
    """Return the run's tokenizers, learned now unless they are there: one from both sides, or one from each."""
    how = recipe.tokenizer
    if all(path.exists() for path in run.tokenizer_files(how.joint)):
        return run.read_tokenizers(how.joint)

    def lines(sides: Sequence[int]) -> Iterator[str]:
        pairs = (pair for pair in corpus.pairs() if part is None or part.keeps(*pair))
        return (pair[side] for pair in pairs for side in sides)

    def learned(sides: Sequence[int], what: str) -> Tokenizer:
        progress = told(listen, f"Learning the {what}", len(sides) * corpus.check_counts())
        return Tokenizer.train(lines(sides), how.sides[sides[0]], progress)

    if how.joint:
        source = target = learned((0, 1), "vocabulary")
    else:
        source, target = learned((0,), "source vocabulary"), learned((1,), "target vocabulary")
    named = zip(("",) if how.joint else ("source ", "target "), (source, target), how.sides, strict=False)
    for side, tokenizer, cut in named:
        if cut.kind in ("bpe", "wordpiece") and len(tokenizer) < how.size:
            listen(Notice(f"The text supports a {side}vocabulary of {len(tokenizer):,} pieces, not {how.size:,}."))
    run.write_tokenizers(source, target, how.joint)
    return source, target


def told(listen: Listen, what: str, total: int) -> Callable[[int], None]:
    """Return a function that passes the number of lines done so far on to the listener."""
    return lambda done: listen(Working(what, done, total))


def tell_dropped(pairs: TokenPairs, corpus: Pairs, longest: int, listen: Listen) -> None:
    """Say how many pairs were left out, and why."""
    if pairs.dropped_empty:
        listen(Notice(f"{corpus}: {pairs.dropped_empty:,} pairs with an empty side are left out."))
    if pairs.dropped_long:
        listen(Notice(f"{corpus}: {pairs.dropped_long:,} pairs of more than {longest} pieces are left out."))
