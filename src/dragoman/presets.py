"""The table of tasks and the presets: the defaults of recipes, by task and by model size."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

_SettingsTable = dict[str, dict[str, Any]]

# The paper's sizes and its 100,000 steps suit millions of sentences. The data of the other tasks is small, so their
# defaults train a useful model in about an hour on two cores (docs/results.md): pre-norm, with a cosine schedule.
_SHORT_TRAINING: dict[str, Any] = {"schedule": "cosine", "clip": 1.0}

# Words are spelled in letters, phones and tags; each side has its own small vocabulary.
_SPELLING_TASK: _SettingsTable = {
    "tokenizer": {"kind": "words", "joint": False},
    "model": {
        "layers": 3,
        "width": 128,
        "inner_width": 384,
        "heads": 4,
        "dropout": 0.15,
        "norm": "pre",
        "share_embeddings": False,
    },
    "training": {
        **_SHORT_TRAINING,
        "steps": 20_000,
        "batch_tokens": 512,
        "rate": 0.0015,
        "warmup": 500,
        "validation_sample": 500,
    },
    "decoding": {"extra_length": 100},
}


@dataclass(frozen=True)
class TaskSpec:
    """Everything that is registered about a task; objects are named by path, "module:name", and imported on use."""

    task: Any  # the path of a class of tasks/, or an object
    data_keys: tuple[str, ...]  # settings of [data] that name its files; those of validation begin with "valid_"
    corpus_keys: tuple[str, ...] = ("label", "file")  # settings of [[data.corpora]] tables
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of its recipes, below a preset and the user's settings
    requirements: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)  # section and key: values
    has_word_tokens: bool = False  # whether an output has one token per source word, as [model] next_word needs
    evaluator: str = "dragoman.cli.evaluators:evaluate_examples"  # of `dragoman evaluate`


TASKS: dict[str, TaskSpec] = {
    "translate": TaskSpec(
        task="dragoman.tasks.translate:TranslationTask",
        data_keys=("source", "target", "pairs", "corpora"),
        corpus_keys=("file", "languages", "source", "target", "label"),
        evaluator="dragoman.cli.evaluators:evaluate_translations",
    ),
    "pronounce": TaskSpec(
        task="dragoman.tasks.word_tasks:PronunciationTask",
        data_keys=("file", "corpora"),
        defaults={**_SPELLING_TASK, "tokenizer": {**_SPELLING_TASK["tokenizer"], "target_kind": "words"}},
        evaluator="dragoman.cli.evaluators:evaluate_pronunciations",
    ),
    "inflect": TaskSpec(
        task="dragoman.tasks.word_tasks:InflectionTask",
        data_keys=("file", "corpora"),
        defaults=_SPELLING_TASK,
        evaluator="dragoman.cli.evaluators:evaluate_inflections",
    ),
    # Section 6.3 of the paper: beam 21, length penalty 0.3, output of at most 300 tokens more than the input.
    "parse": TaskSpec(
        task="dragoman.tasks.parse:ParsingTask",
        data_keys=("file",),
        defaults={
            "data": {"longest": 600},
            "tokenizer": {"kind": "bpe", "target_kind": "words", "size": 4000, "joint": False},
            "model": {
                "layers": 4,
                "width": 128,
                "inner_width": 512,
                "heads": 4,
                "dropout": 0.2,
                "norm": "pre",
                "share_embeddings": False,
                "next_word": True,
                "rotary": True,
            },
            "training": {
                **_SHORT_TRAINING,
                "steps": 6000,
                "batch_tokens": 3072,
                "rate": 0.0025,
                "warmup": 400,
                "validation_sample": 100,
            },
            "decoding": {"beam": 21, "length_penalty": 0.3, "extra_length": 300},
        },
        has_word_tokens=True,
        evaluator="dragoman.cli.evaluators:evaluate_trees",
    ),
    # A language model has no source; label smoothing would only blur its probabilities, and it must write line ends.
    "generate": TaskSpec(
        task="dragoman.tasks.generate:GenerationTask",
        data_keys=("file",),
        defaults={
            "data": {"longest": 256},
            "model": {
                "architecture": "decoder_only",
                "layers": 4,
                "width": 192,
                "inner_width": 768,
                "heads": 6,
                "norm": "pre",
                "activation": "gelu",
            },
            "training": {
                **_SHORT_TRAINING,
                "steps": 5000,
                "batch_tokens": 2048,
                "rate": 0.003,
                "warmup": 200,
                "label_smoothing": 0.0,
            },
        },
        requirements={
            ("model", "architecture"): ("decoder_only",),
            ("tokenizer", "kind"): ("characters", "bytes", "bpe", "wordpiece"),
        },
        evaluator="dragoman.cli.evaluators:evaluate_language_model",
    ),
}
DATA_FILE_KEYS = tuple(
    part + name
    for part in ("", "valid_")
    for name in dict.fromkeys(n for spec in TASKS.values() for n in spec.data_keys)
)

# Every size has the paper's schedule, whatever the task's default is: its learning rate depends on the width.
_NOAM_SCHEDULE: dict[str, Any] = {"schedule": "noam", "rate": None}

PRESETS: dict[str, _SettingsTable] = {
    # The paper's 100,000 steps suit its 4.5 million pairs. The two small sizes are for small corpora: they stop when
    # the validation loss has not improved ten times in a row.
    "tiny": {
        "model": {"layers": 4, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.3},
        "training": {**_NOAM_SCHEDULE, "steps": 20_000, "warmup": 2000, "clip": 1.0, "patience": 10},
    },
    "small": {
        "model": {"layers": 6, "width": 256, "inner_width": 1024, "heads": 4, "dropout": 0.1},
        "training": {**_NOAM_SCHEDULE, "steps": 50_000, "warmup": 4000, "clip": 1.0, "patience": 10},
    },
    "base": {
        "model": {"layers": 6, "width": 512, "inner_width": 2048, "heads": 8, "dropout": 0.1},
        "training": {**_NOAM_SCHEDULE, "steps": 100_000, "warmup": 4000, "clip": 0.0},
    },
    "big": {
        "model": {"layers": 6, "width": 1024, "inner_width": 4096, "heads": 16, "dropout": 0.3},
        "training": {**_NOAM_SCHEDULE, "steps": 100_000, "warmup": 4000, "clip": 0.0},
    },
}


def default_preset(task: str) -> str | None:
    """Return the preset to use where none is given: the smallest, unless the task's defaults set a size."""
    return None if "width" in (TASKS[task].defaults.get("model", {}) if task in TASKS else {}) else "tiny"


@lru_cache
def import_object(path: str) -> Any:
    """Import the object at a path like "dragoman.tasks.translate:TranslationTask"."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
