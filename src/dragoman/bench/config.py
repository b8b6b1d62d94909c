"""The options of a benchmark, and the recipes of the models it measures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.errors import UserError, did_you_mean
from dragoman.presets import PRESETS
from dragoman.recipe import Recipe, merge_tables
from dragoman.run import Run
from dragoman.tasks.registry import task_for

_PARTS = ("training", "decoding")
SIZES: dict[str, dict[str, Any]] = {
    **PRESETS,
    "wide": {"model": {"layers": 3, "width": 512, "inner_width": 1024, "heads": 8, "dropout": 0.1}},
}
_DEFAULT_TRAINING_SIZES = ("tiny", "base")  # if --size is not given
_DEFAULT_DECODING_SIZES = ("base",)
BEAMS = (1, 4)


@dataclass(frozen=True)
class _Workload:
    """The amount of work of a benchmark."""

    max_pairs: int  # of the training text, at most
    phrasebook_pairs: int  # if no text is given
    vocabulary_size: int  # without a run
    batch_tokens: int  # without a run
    matrix_size: int  # of the matrices that are multiplied to measure the peak
    peak_seconds: float  # per data type and round
    pause_seconds: float  # between turns, until the threads of the previous engine stop spinning
    has_hugging_face: bool  # whether to compare with Hugging Face Transformers, which takes long to import


FULL_WORKLOAD = _Workload(
    max_pairs=30_000,
    phrasebook_pairs=10_000,
    vocabulary_size=8000,
    batch_tokens=4096,
    matrix_size=2048,
    peak_seconds=0.3,
    pause_seconds=0.25,
    has_hugging_face=True,
)
QUICK_WORKLOAD = _Workload(
    max_pairs=200, phrasebook_pairs=200, vocabulary_size=400, batch_tokens=256, matrix_size=128, peak_seconds=0.0,
    pause_seconds=0.0, has_hugging_face=False,
)  # fmt: skip


@dataclass(frozen=True)
class BenchmarkConfig:
    """The options of `dragoman bench`; `run`, `source` and `target` name the model and the text."""

    run: Path | None = None
    source: str | None = None
    target: str | None = None
    only: str | None = None
    sizes: tuple[str, ...] = ()
    repeats: int = 5
    turn_seconds: float = 6.0  # length of a turn of the slowest engine in training
    sentences: int = 1000  # decoded in bulk
    singles: int = 100  # of these, also decoded one at a time
    threads: int = 1
    bfloat16: bool = False  # also train in bfloat16, even if the processor has no instructions for it
    workload: _Workload = FULL_WORKLOAD

    @property
    def training_sizes(self) -> tuple[str, ...]:
        """The sizes to train; none if there is a run."""
        if self.only == "decoding":
            return ()
        return self.sizes or (() if self.run else _DEFAULT_TRAINING_SIZES)

    @property
    def decoding_sizes(self) -> tuple[str, ...]:
        """The sizes to decode with random weights; none if there is a run."""
        return () if self.only == "training" or self.run else self.sizes or _DEFAULT_DECODING_SIZES

    def check(self) -> None:
        """Raise a UserError for options that cannot be combined."""
        if self.only not in (None, *_PARTS):
            raise UserError(f'--only "{self.only}" is unknown; choose {" or ".join(_PARTS)}.')
        for size in self.sizes:
            if size not in SIZES:
                raise UserError(f'--size "{size}" is unknown; choose {", ".join(SIZES)}.{did_you_mean(size, [*SIZES])}')
        if self.target and not self.source:
            raise UserError("--target is given but --source is not; give both files of a parallel text.")
        if self.source and not self.target and not self.run and self.only != "decoding":
            raise UserError(
                "--source is given but --target is not; training needs both files. Add --target, or --only decoding."
            )
        task = task_for(Run(self.run).read_recipe()) if self.run else None
        if task and not task.has_language_pair:
            raise UserError(f"{self.run} is a {task.noun}; `dragoman bench` supports translators only.")
        if self.run and self.sizes and self.only == "decoding":
            raise UserError(
                "--size has no effect with RUN and --only decoding; remove --size, or remove RUN to decode with random "
                "weights."
            )


def recipe_for_size(
    size: str, config: BenchmarkConfig, *, joint: bool = True, overrides: dict[str, Any] | None = None
) -> Recipe:
    """Return the recipe of a named size; other settings have the defaults of `dragoman train`."""
    settings = {
        "tokenizer": {"joint": joint, "size": config.workload.vocabulary_size},
        "model": {"share_embeddings": joint},
        "training": {"batch_tokens": config.workload.batch_tokens},
    }
    return Recipe.from_table(merge_tables(merge_tables(SIZES[size], settings), overrides or {}))


def endless_training_recipe(recipe: Recipe, config: BenchmarkConfig, precision: str = "auto") -> Recipe:
    """Return a recipe that trains on the CPU without end."""
    training = {"device": "cpu", "threads": config.threads, "precision": precision, "steps": 1 << 40}
    return Recipe.from_table(merge_tables(recipe.model_dump(), {"training": training}))
