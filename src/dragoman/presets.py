"""What a recipe begins with: the settings of each task, and over them those of a named size."""

from typing import Any

Table = dict[str, dict[str, Any]]

# The paper's sizes and its 100,000 steps suit millions of sentences. What the other tasks learn from is small, so each
# begins with a model and a training that are useful after an hour or so of two cores (docs/results.md): normalised
# first, with a rate that ends at zero.
BRIEF: dict[str, Any] = {"schedule": "cosine", "clip": 1.0}

# Words are spelled out in letters, phones and tags, which are few; each side has its own.
SPELLED: Table = {
    "tokenizer": {"kind": "words", "joint": False},
    "model": {
        "layers": 3, "width": 128, "inner_width": 384, "heads": 4, "dropout": 0.15, "norm": "pre",
        "share_embeddings": False,
    },
    "training": {
        **BRIEF, "steps": 20_000, "batch_tokens": 512, "rate": 0.0015, "warmup": 500, "validation_sample": 500,
    },
    "decoding": {"extra_length": 100},
}  # fmt: skip

TASKS: dict[str, Table] = {
    "translate": {},
    "pronounce": {**SPELLED, "tokenizer": {**SPELLED["tokenizer"], "target_kind": "words"}},
    "inflect": SPELLED,
    # Section 6.3 of the paper: beam 21, length penalty 0.3, output of at most 300 tokens more than the input.
    "parse": {
        "data": {"longest": 600},
        "tokenizer": {"kind": "bpe", "target_kind": "words", "size": 4000, "joint": False},
        "model": {
            "layers": 4, "width": 128, "inner_width": 512, "heads": 4, "dropout": 0.2, "norm": "pre",
            "share_embeddings": False, "guide": "words", "rotary": True,
        },
        "training": {
            **BRIEF, "steps": 6000, "batch_tokens": 3072, "rate": 0.0025, "warmup": 400, "validation_sample": 100,
        },
        "decoding": {"beam": 21, "length_penalty": 0.3, "extra_length": 300},
    },
    # A language model reads nothing but what it has written, and smoothing would only blur its probabilities.
    "generate": {
        "data": {"longest": 256},
        "model": {
            "architecture": "joined", "layers": 4, "width": 192, "inner_width": 768, "heads": 6, "norm": "pre",
            "activation": "gelu",
        },
        "training": {
            **BRIEF, "steps": 5000, "batch_tokens": 2048, "rate": 0.003, "warmup": 200, "label_smoothing": 0.0,
        },
    },
}  # fmt: skip

# Tasks whose outputs have a token for each word of the source, so that a guide can tell which word is next.
GUIDED = ("parse",)

# Which settings of [data] name the text that a task learns from; its validation text has the same names with "valid_".
READS: dict[str, tuple[str, ...]] = {
    "translate": ("source", "target", "pairs"),
    "pronounce": ("file", "labelled"),
    "inflect": ("file", "labelled"),
    "parse": ("file",),
    "generate": ("file",),
}
# What some tasks cannot do without: setting and values. A language model has one stack, and line ends are no words.
NEEDS: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {
    "generate": {
        ("model", "architecture"): ("joined",),
        ("tokenizer", "kind"): ("characters", "bytes", "bpe", "wordpiece"),
    },
}
FILES = tuple(
    part + name for part in ("", "valid_") for name in dict.fromkeys(name for names in READS.values() for name in names)
)

# Every size comes with the paper's schedule, whatever the task has: its rate falls with the width.
NOAM: dict[str, Any] = {"schedule": "noam", "rate": None}

PRESETS: dict[str, Table] = {
    # The paper's 100,000 steps suit its 4.5 million pairs. The two small sizes are for small corpora: they stop when
    # validation has not got better ten times in a row.
    "tiny": {
        "model": {"layers": 4, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.3},
        "training": {**NOAM, "steps": 20_000, "warmup": 2000, "clip": 1.0, "patience": 10},
    },
    "small": {
        "model": {"layers": 6, "width": 256, "inner_width": 1024, "heads": 4, "dropout": 0.1},
        "training": {**NOAM, "steps": 50_000, "warmup": 4000, "clip": 1.0, "patience": 10},
    },
    "base": {
        "model": {"layers": 6, "width": 512, "inner_width": 2048, "heads": 8, "dropout": 0.1},
        "training": {**NOAM, "steps": 100_000, "warmup": 4000, "clip": 0.0},
    },
    "big": {
        "model": {"layers": 6, "width": 1024, "inner_width": 4096, "heads": 16, "dropout": 0.3},
        "training": {**NOAM, "steps": 100_000, "warmup": 4000, "clip": 0.0},
    },
}


def usual_preset(task: str) -> str | None:
    """Return the size that is meant where none is named: the smallest, unless the task has a size of its own."""
    return None if "width" in TASKS.get(task, {}).get("model", {}) else "tiny"
