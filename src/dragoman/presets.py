"""What a recipe begins with: the settings of each task, and over them those of a named size."""

from typing import Any

_SettingsTable = dict[str, dict[str, Any]]

# The paper's sizes and its 100,000 steps suit millions of sentences. What the other tasks learn from is small, so each
# begins with a model and a training that are useful after an hour or so of two cores (docs/results.md): normalised
# first, with a rate that ends at zero.
_SHORT_TRAINING: dict[str, Any] = {"schedule": "cosine", "clip": 1.0}

# Words are spelled out in letters, phones and tags, which are few; each side has its own.
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

TASK_DEFAULTS: dict[str, _SettingsTable] = {
    "translate": {},
    "pronounce": {**_SPELLING_TASK, "tokenizer": {**_SPELLING_TASK["tokenizer"], "target_kind": "words"}},
    "inflect": _SPELLING_TASK,
    # Section 6.3 of the paper: beam 21, length penalty 0.3, output of at most 300 tokens more than the input.
    "parse": {
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
    # A language model reads nothing but what it has written, and smoothing would only blur its probabilities.
    "generate": {
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
}

# Tasks whose outputs have a token for each word of the source, so that the decoder can be given the next word.
NEXT_WORD_TASKS = ("parse",)

# Which settings of [data] name the text that a task learns from; its validation text has the same names with "valid_".
TASK_DATA_KEYS: dict[str, tuple[str, ...]] = {
    "translate": ("source", "target", "pairs"),
    "pronounce": ("file", "corpora"),
    "inflect": ("file", "corpora"),
    "parse": ("file",),
    "generate": ("file",),
}
# What some tasks cannot do without: setting and values. A language model has one stack, and line ends are no words.
TASK_REQUIREMENTS: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {
    "generate": {
        ("model", "architecture"): ("decoder_only",),
        ("tokenizer", "kind"): ("characters", "bytes", "bpe", "wordpiece"),
    },
}
DATA_FILE_KEYS = tuple(
    part + name
    for part in ("", "valid_")
    for name in dict.fromkeys(name for names in TASK_DATA_KEYS.values() for name in names)
)

# Every size comes with the paper's schedule, whatever the task has: its rate falls with the width.
_NOAM_SCHEDULE: dict[str, Any] = {"schedule": "noam", "rate": None}

PRESETS: dict[str, _SettingsTable] = {
    # The paper's 100,000 steps suit its 4.5 million pairs. The two small sizes are for small corpora: they stop when
    # validation has not got better ten times in a row.
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
    """Return the size that is meant where none is named: the smallest, unless the task has a size of its own."""
    return None if "width" in TASK_DEFAULTS.get(task, {}).get("model", {}) else "tiny"
