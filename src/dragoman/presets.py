"""What a recipe begins with: the settings of each task, and over them those of a named size."""

from typing import Any

Table = dict[str, dict[str, Any]]

# Words are spelled out in letters, phones and tags, which are few; each side has its own.
SPELLED: Table = {
    "tokenizer": {"kind": "words", "joint": False},
    "model": {"share_embeddings": False},
    "training": {"validation_sample": 500},
    "decoding": {"extra_length": 100},
}

TASKS: dict[str, Table] = {
    "translate": {},
    "pronounce": {**SPELLED, "tokenizer": {**SPELLED["tokenizer"], "target_kind": "words"}},
    "inflect": SPELLED,
    # Section 6.3 of the paper: beam 21, length penalty 0.3, output of at most 300 tokens more than the input.
    "parse": {
        "data": {"longest": 600},
        "tokenizer": {"kind": "bpe", "target_kind": "words", "size": 4000, "joint": False},
        "model": {"share_embeddings": False, "guide": "words"},
        "training": {"validation_sample": 100},
        "decoding": {"beam": 21, "length_penalty": 0.3, "extra_length": 300},
    },
    # A language model reads nothing but what it has written, and smoothing would only blur its probabilities.
    "generate": {
        "data": {"longest": 256},
        "model": {"architecture": "joined"},
        "training": {"label_smoothing": 0.0},
    },
}

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

PRESETS: dict[str, Table] = {
    # The paper's 100,000 steps suit its 4.5 million pairs. The two small sizes are for small corpora: they stop when
    # validation has not got better ten times in a row.
    "tiny": {
        "model": {"layers": 4, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.3},
        "training": {"steps": 20_000, "warmup": 2000, "clip": 1.0, "patience": 10},
    },
    "small": {
        "model": {"layers": 6, "width": 256, "inner_width": 1024, "heads": 4},
        "training": {"steps": 50_000, "warmup": 4000, "clip": 1.0, "patience": 10},
    },
    "base": {"model": {"layers": 6, "width": 512, "inner_width": 2048, "heads": 8, "dropout": 0.1}},
    "big": {"model": {"layers": 6, "width": 1024, "inner_width": 4096, "heads": 16, "dropout": 0.3}},
}
