"""From files to vocabularies and token arrays, with a look at the data on the way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dragoman.data.arrays import TokenPairs
from dragoman.data.corpus import TextPairs, select_pairs
from dragoman.data.split import SplitPart
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.events import OnEvent, ProgressUpdate
from dragoman.tasks.registry import task_for
from dragoman.tasks.task import Example
from dragoman.text.tokenizer import Tokenizer
from dragoman.training.session import Notice


def open_corpora(recipe: Recipe) -> tuple[TextPairs, TextPairs | None]:
    """Find the files that the recipe names, before anything is touched."""
    corpus, valid = task_for(recipe).open_corpora(recipe.data)
    for each in filter(None, (corpus, valid)):
        each.count_pairs()
    return corpus, valid


@dataclass(frozen=True)
class PreparedData:
    """The data of a training as token arrays, and some of the validation data as people see it."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train_pairs: TokenPairs
    valid_pairs: TokenPairs
    examples: list[Example]  # of the validation data, to try the model on
    origin: dict[str, str]  # the fingerprints of all this was made from


def prepare_data(
    run: Run, recipe: Recipe, corpus: TextPairs, valid: TextPairs | None, on_event: OnEvent
) -> PreparedData:
    """Look the data over, learn the vocabulary, and turn text into token arrays."""
    task = task_for(recipe)
    for notice in (*corpus.notices(), *(valid.notices() if valid else ())):
        on_event(Notice(notice))
    for remark in task.check_data(corpus, valid):
        on_event(Notice(*remark))
    split = None if valid else task.split_validation(corpus, recipe)
    if split:
        usual = f"No validation files are given: {split.held_out:,} pairs of the training text are held out."
        on_event(Notice(split.notice or usual))
    source, target = _load_or_train_tokenizers(run, recipe, corpus, split.training if split else None, on_event)
    longest = recipe.data.longest

    def arrays(texts: TextPairs, part: SplitPart | None, what: str) -> TokenPairs:
        progress = progress_callback(on_event, what, texts.count_pairs())
        found = task.tokenize_corpus(texts, (source, target), longest, part, progress)
        _report_dropped_pairs(found, texts, longest, on_event)
        return found

    train_pairs = arrays(corpus, split.training if split else None, "Cutting the training text into pieces")
    valid_pairs = arrays(
        valid or corpus, split.validation if split else None, "Cutting the validation text into pieces"
    )
    examples = task.examples_from_pairs(
        select_pairs(valid or corpus, valid_pairs.line_numbers[: task.max_scored_examples])
    )
    made_from = {f"the training text ({corpus})": corpus.fingerprint()}
    if valid:
        made_from[f"the validation text ({valid})"] = valid.fingerprint()
    for path, tokenizer in zip(run.tokenizer_files(recipe.tokenizer.joint), (source, target), strict=False):
        made_from[f"the vocabulary ({path.name})"] = tokenizer.fingerprint
    return PreparedData(source, target, train_pairs, valid_pairs, examples, made_from)


def _load_or_train_tokenizers(
    run: Run, recipe: Recipe, corpus: TextPairs, part: SplitPart | None, on_event: OnEvent
) -> tuple[Tokenizer, Tokenizer]:
    """Return the run's tokenizers, learned now unless they are there: one from both sides, or one from each."""
    how = recipe.tokenizer
    if all(path.exists() for path in run.tokenizer_files(how.joint)):
        return run.read_tokenizers(how.joint)

    def lines(sides: Sequence[int]) -> Iterator[str]:
        pairs = (pair for pair in corpus.pairs() if part is None or part.contains(*pair))
        return (pair[side] for pair in pairs for side in sides)

    def learned(sides: Sequence[int], what: str) -> Tokenizer:
        progress = progress_callback(on_event, f"Learning the {what}", len(sides) * corpus.count_pairs())
        return Tokenizer.train(lines(sides), how.sides[sides[0]], progress)

    if how.joint:
        source = target = learned((0, 1), "vocabulary")
    else:
        source, target = learned((0,), "source vocabulary"), learned((1,), "target vocabulary")
    named = zip(("",) if how.joint else ("source ", "target "), (source, target), how.sides, strict=False)
    for side, tokenizer, cut in named:
        if cut.kind in ("bpe", "wordpiece") and len(tokenizer) < how.size:
            on_event(Notice(f"The text supports a {side}vocabulary of {len(tokenizer):,} pieces, not {how.size:,}."))
    run.write_tokenizers(source, target, how.joint)
    return source, target


def progress_callback(on_event: OnEvent, description: str, total: int) -> Callable[[int], None]:
    """Return a function that passes the number of lines done so far on to the listener."""
    return lambda done: on_event(ProgressUpdate(description, done, total))


def _report_dropped_pairs(pairs: TokenPairs, corpus: TextPairs, longest: int, on_event: OnEvent) -> None:
    """Say how many pairs were left out, and why."""
    if pairs.dropped_empty:
        on_event(Notice(f"{corpus}: {pairs.dropped_empty:,} pairs with an empty side are left out."))
    if pairs.dropped_long:
        on_event(Notice(f"{corpus}: {pairs.dropped_long:,} pairs of more than {longest} pieces are left out."))
