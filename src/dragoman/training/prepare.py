"""Before the first step: checks that no run is lost or resumed inexactly, and data preparation.

Data preparation turns the files of a recipe into tokenizers and token arrays.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from dragoman.checkpoints import TrainingProgress
from dragoman.data.arrays import TokenPairs
from dragoman.data.corpus import TextPairs, select_pairs
from dragoman.data.split import SplitPart
from dragoman.errors import UserError, format_count
from dragoman.model_files import read_tokenizers, write_tokenizers
from dragoman.recipe import Recipe, recipe_differences
from dragoman.run import Run
from dragoman.storage import list_directory
from dragoman.tasks.events import Notice, OnEvent, progress_callback
from dragoman.tasks.registry import task_for
from dragoman.tasks.task import ValidationData
from dragoman.text.sentences import split_sentences
from dragoman.text.tokenizer import Tokenizer
from dragoman.toml import parse_toml
from dragoman.training.planner import take_planned_settings

_SPLIT_SAMPLE = 10_000  # lines whose sentences are counted, at least
OPEN_ENDED_SCHEDULES = ("noam", "constant")  # whose learning rates do not depend on the number of steps
_CHANGEABLE_SETTINGS = {
    "run", "training.steps", "training.minutes", "training.patience", "training.keep", "training.average",
}  # fmt: skip


def check_run_directory(run: Run, recipe: Recipe, resume: bool, overwrite: bool) -> Recipe:
    """Return the recipe to train with; raise unless a training may write into the directory.

    It may if the directory is new, or `resume` or `overwrite` allow it. A resumed training takes the settings that the
    recipe leaves open from the recorded recipe.
    """
    if run.folder.exists() and not run.folder.is_dir():
        raise UserError(f"{run} is a file, not a directory. Choose another --run.")
    if resume and overwrite:
        raise UserError(
            "--resume and --overwrite cannot be combined: --resume continues a run, --overwrite replaces it."
        )
    run.check_files()
    _check_no_foreign_files(run)
    if overwrite or not run.exists:
        return recipe
    if not resume:
        raise UserError(
            f"{run} already contains a run. Continue it with --resume, replace it with --overwrite, or choose another "
            "--run."
        )
    if not list_directory(run.checkpoints_dir):
        raise UserError(
            f"{run} has a model but no checkpoint to resume from. Use --overwrite to train from the beginning."
        )
    if run.recipe_file.exists():
        recorded = run.read_recipe()
        recipe = take_planned_settings(recipe, recorded)
        _check_same_recipe(run, recorded, recipe)
    return recipe


def _check_no_foreign_files(run: Run) -> None:
    foreign = [path.name for path in run.training_files if path.exists()]
    if foreign and not run.has_started:
        raise UserError(
            f"{run} contains {' and '.join(foreign)} but is not a run directory; training would overwrite "
            "these files. Move them elsewhere, or choose another --run."
        )


def _check_same_recipe(run: Run, before: Recipe, now: Recipe) -> None:
    is_open_ended = before.training.schedule in OPEN_ENDED_SCHEDULES
    changeable = _CHANGEABLE_SETTINGS if is_open_ended else _CHANGEABLE_SETTINGS - {"training.steps"}
    changed = [line for line in recipe_differences(before, now) if line.split(":")[0] not in changeable]
    ends = " (the learning rate falls to zero at the last step, so it cannot be moved)"
    _raise_if_changed(run, [line + ends if line.startswith("training.steps:") else line for line in changed])


def check_same_origin(run: Run, progress: TrainingProgress, recipe: Recipe, origin: Mapping[str, str]) -> None:
    """Raise if the recipe, the text or the vocabulary has changed since the checkpoint's training started."""
    if "recipe" in progress.origin:
        table = parse_toml(
            progress.origin["recipe"].encode("utf-8", "surrogatepass"), f"{run}: the recipe in its checkpoint"
        )
        recorded = Recipe.from_table(table, origin=str(run), is_complete=True)
        _check_same_recipe(run, recorded, recipe)
    changed = [name for name in origin if name != "recipe" and progress.origin.get(name, origin[name]) != origin[name]]
    _raise_if_changed(run, [f"{name}: the contents differ" for name in changed])


def _raise_if_changed(run: Run, changed: list[str]) -> None:
    if changed:
        raise UserError(
            f"{run} cannot be resumed, because the following has changed since training started:\n  "
            + "\n  ".join(changed)
            + "\nUndo the change, or train into another directory with --run."
        )


def open_corpora(recipe: Recipe) -> tuple[TextPairs, TextPairs | None]:
    """Return the training and the validation text of a recipe, after reading both once to check them."""
    corpus, valid = task_for(recipe).open_corpora(recipe.data)
    corpus.count_pairs()
    if valid:
        valid.count_pairs()
    return corpus, valid


@dataclass(frozen=True)
class PreparedData:
    """The tokenizers of a training and its data as token arrays."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train_pairs: TokenPairs
    validation: ValidationData
    origin: dict[str, str]  # fingerprints of everything it was made from
    paragraph_share: float = 0.0  # of the training sources, those with several sentences


def prepare_data(
    run: Run, recipe: Recipe, corpus: TextPairs, valid: TextPairs | None, on_event: OnEvent
) -> PreparedData:
    """Check the data, train the tokenizers unless the run has them, and turn text into token arrays."""
    task = task_for(recipe)
    for notice in (*corpus.notices(), *(valid.notices() if valid else ())):
        on_event(Notice(notice))
    for warning in task.check_data(corpus, valid):
        on_event(Notice(*warning))
    split = None if valid else task.split_validation(corpus, recipe)
    if split:
        pairs = format_count(split.held_out, "pair")
        held_out = f"No validation files are given: holding out {pairs} of the training text for validation."
        on_event(Notice(split.notice or held_out))
    train_part, valid_part = (split.training, split.validation) if split else (None, None)
    source, target = _load_or_train_tokenizers(run, recipe, corpus, train_part, on_event)

    def tokenize(text: TextPairs, part: SplitPart | None, name: str) -> TokenPairs:
        verb = "Reading the {} recordings" if task.reads_signals else "Tokenizing the {} text"
        on_lines_done = progress_callback(on_event, verb.format(name), text.count_pairs())
        pairs = task.tokenize_corpus(
            text, (source, target), recipe.data.longest, part, on_lines_done, for_training=name == "training"
        )
        _report_dropped_pairs(pairs, text, recipe.data.longest, on_event)
        return pairs

    train_pairs = tokenize(corpus, train_part, "training")
    valid_text = valid or corpus
    valid_pairs = tokenize(valid_text, valid_part, "validation")
    scored_lines = valid_pairs.line_numbers[: task.max_scored_examples]
    examples = task.examples_from_pairs(select_pairs(valid_text, scored_lines))
    origin = {f"the training text ({corpus})": corpus.fingerprint()}
    if valid:
        origin[f"the validation text ({valid})"] = valid.fingerprint()
    for path, tokenizer in zip(run.tokenizer_files(recipe.tokenizer.joint), (source, target), strict=False):
        origin[f"the vocabulary ({path.name})"] = tokenizer.fingerprint
    share = 0.0 if task.never_split else _paragraph_share(corpus)
    return PreparedData(source, target, train_pairs, ValidationData(examples, valid_pairs), origin, share)


def _paragraph_share(corpus: TextPairs) -> float:
    """Return the share of sources with several sentences among lines spread evenly over the corpus."""
    every = max(1, corpus.count_pairs() // _SPLIT_SAMPLE)
    counts = [len(split_sentences(source).sentences) for source, _ in islice(corpus.pairs(), 0, None, every)]
    return round(sum(count > 1 for count in counts) / max(1, len(counts)), 4)


def _load_or_train_tokenizers(
    run: Run, recipe: Recipe, corpus: TextPairs, part: SplitPart | None, on_event: OnEvent
) -> tuple[Tokenizer, Tokenizer]:
    config = recipe.tokenizer
    if all(path.exists() for path in run.tokenizer_files(config.joint)):
        return read_tokenizers(run, config.joint)

    def lines(sides: Sequence[int]) -> Iterator[str]:
        pairs = (pair for pair in corpus.pairs() if part is None or part.contains(*pair))
        return (pair[side] for pair in pairs for side in sides)

    def train_tokenizer(sides: Sequence[int], name: str) -> Tokenizer:
        on_lines_done = progress_callback(on_event, f"Training the {name}", len(sides) * corpus.count_pairs())
        return Tokenizer.train(lines(sides), config.sides[sides[0]], on_lines_done)

    if config.joint:
        source = target = train_tokenizer((1,) if task_for(recipe).reads_signals else (0, 1), "tokenizer")
    else:
        source, target = train_tokenizer((0,), "source tokenizer"), train_tokenizer((1,), "target tokenizer")
    names = ("",) if config.joint else ("source ", "target ")
    for name, tokenizer, side in zip(names, (source, target), config.sides, strict=False):
        if side.kind in ("bpe", "wordpiece") and len(tokenizer) < config.size:
            tokens = format_count(len(tokenizer), "token")
            on_event(Notice(f"The {name}vocabulary has {tokens}, not {config.size:,}: the text is too small."))
    write_tokenizers(run, source, target, config.joint)
    return source, target


def _report_dropped_pairs(pairs: TokenPairs, corpus: TextPairs, longest: int, on_event: OnEvent) -> None:
    if pairs.dropped_empty:
        on_event(Notice(f"{corpus}: skipped {format_count(pairs.dropped_empty, 'pair')} with an empty side."))
    if pairs.dropped_long:
        on_event(Notice(f"{corpus}: skipped {format_count(pairs.dropped_long, 'pair')} of more than {longest} tokens."))
