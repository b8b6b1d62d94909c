"""The table of tasks with their defaults and planning rules, and the presets of model sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

_SettingsTable = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class SizeRule:
    """A model size that the planner may choose, and when: with enough examples, and time to train on enough tokens."""

    model: Mapping[str, Any]
    min_pairs: int = 0
    min_tokens: float = 0.0  # padded tokens that the training sees, on the longer side


_SENTENCE_SIZES = (
    SizeRule({"layers": 4, "width": 128, "inner_width": 256, "heads": 4}),
    SizeRule({"layers": 3, "width": 256, "inner_width": 1024, "heads": 4}, min_pairs=50_000, min_tokens=20e6),
    SizeRule({"layers": 6, "width": 256, "inner_width": 1024, "heads": 4}, min_pairs=200_000, min_tokens=80e6),
    SizeRule({"layers": 6, "width": 512, "inner_width": 2048, "heads": 8}, min_pairs=1_000_000, min_tokens=400e6),
)


@dataclass(frozen=True)
class PlanningRules:
    """How the planner chooses settings for a task; docs/decisions/0017-planner.md has the experiments."""

    sizes: tuple[SizeRule, ...] = _SENTENCE_SIZES  # smallest first
    rate: float = 0.003  # peak learning rate at width 128 and batches of 2,048 tokens
    schedule: str = "linear"
    batch_tokens: tuple[int, int] = (1024, 4096)  # the smallest and the largest batch
    epochs: float = 40  # times through 20,000 examples, if no budget is given
    max_epochs: float = 120  # times through few examples, if no budget is given
    max_dropout: float = 0.3
    is_running_text: bool = False  # whether the data is one text, whose amount is counted in characters, not pairs
    min_tokens: float = 500_000  # with fewer padded tokens, a model learns next to nothing
    enough_tokens: float = 5_000_000  # with which a small model is useful
    amounts: tuple[tuple[int, str], ...] = ()  # what to expect with fewer examples than this


# Words are spelled in letters, phones and tags; each side has its own small vocabulary.
_SPELLING_TASK: _SettingsTable = {
    "tokenizer": {"kind": "words", "joint": False},
    "model": {"share_embeddings": False},
    "training": {"validation_sample": 500},
    "decoding": {"extra_length": 100},
}
_SPELLING_RULES = PlanningRules(
    sizes=(SizeRule({"layers": 3, "width": 128, "inner_width": 384, "heads": 4}),),
    schedule="cosine",
    batch_tokens=(512, 512),
    min_tokens=200_000,
    enough_tokens=1_500_000,
    amounts=(
        (10_000, "regular words will be right, others wrong; more words help, or a recurrent model (pronunciation.md)"),
        (30_000, "regular words will be right, irregular ones often wrong"),
        (1 << 62, "most words will be right"),
    ),
)


@dataclass(frozen=True)
class TaskSpec:
    """Everything that is registered about a task; objects are named by path, "module:name", and imported on use."""

    task: Any  # the path of a class of tasks/, or an object
    data_keys: tuple[str, ...]  # settings of [data] that name its files; those of validation begin with "valid_"
    corpus_keys: tuple[str, ...] = ("label", "file")  # settings of [[data.corpora]] tables
    planning: PlanningRules = field(default_factory=PlanningRules)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of its recipes, below a preset and the user's settings
    requirements: Mapping[tuple[str, str], tuple[str | bool, ...]] = field(
        default_factory=dict
    )  # section and key: values
    has_word_tokens: bool = False  # whether an output has one token per source word, as [model] next_word needs
    evaluator: str = "dragoman.cli.evaluators:evaluate_examples"  # of `dragoman evaluate`


TASKS: dict[str, TaskSpec] = {
    "translate": TaskSpec(
        task="dragoman.tasks.translate:TranslationTask",
        data_keys=("source", "target", "pairs", "corpora"),
        corpus_keys=("file", "languages", "source", "target", "label"),
        planning=PlanningRules(
            amounts=(
                (2000, "too little text to generalise: it will mostly repeat sentences that it has seen"),
                (50_000, "a phrasebook rather than a translator; more text helps most"),
                (500_000, "everyday sentences like those in the text; rare words will often be wrong"),
                (1 << 62, "usable translations of texts like the training text"),
            ),
        ),
        defaults={"tokenizer": {"kind": "bpe"}},
        evaluator="dragoman.cli.evaluators:evaluate_translations",
    ),
    "pronounce": TaskSpec(
        task="dragoman.tasks.word_tasks:PronunciationTask",
        data_keys=("file", "corpora"),
        planning=_SPELLING_RULES,
        defaults={**_SPELLING_TASK, "tokenizer": {**_SPELLING_TASK["tokenizer"], "target_kind": "words"}},
        evaluator="dragoman.cli.evaluators:evaluate_pronunciations",
    ),
    "inflect": TaskSpec(
        task="dragoman.tasks.word_tasks:InflectionTask",
        data_keys=("file", "corpora"),
        planning=_SPELLING_RULES,
        defaults=_SPELLING_TASK,
        evaluator="dragoman.cli.evaluators:evaluate_inflections",
    ),
    # Section 6.3 of the paper: beam 21, length penalty 0.3, output of at most 300 tokens more than the input.
    "parse": TaskSpec(
        task="dragoman.tasks.parse:ParsingTask",
        data_keys=("file",),
        planning=PlanningRules(
            sizes=(
                SizeRule({"layers": 4, "width": 128, "inner_width": 384, "heads": 4}),
                SizeRule(
                    {"layers": 6, "decoder_layers": 2, "width": 192, "inner_width": 768, "heads": 6},
                    min_pairs=8000,
                    min_tokens=8e6,
                ),
            ),
            rate=0.0025,
            schedule="cosine",
            batch_tokens=(1536, 2048),
            min_tokens=1_000_000,
            amounts=(
                (1000, "too few trees to generalise well; more trees help most"),
                (10_000, "phrases will be right more often than whole trees; more trees help most"),
                (1 << 62, "good trees for text like the training text"),
            ),
        ),
        defaults={
            "data": {"longest": 600},
            "tokenizer": {"kind": "bpe", "target_kind": "words", "joint": False},
            "model": {"share_embeddings": False, "next_word": True, "rotary": True},
            "training": {"validation_sample": 100},
            "decoding": {"beam": 21, "length_penalty": 0.3, "extra_length": 300},
        },
        has_word_tokens=True,
        evaluator="dragoman.cli.evaluators:evaluate_trees",
    ),
    # A language model has no source; label smoothing would only blur its probabilities, and it must write line ends.
    "generate": TaskSpec(
        task="dragoman.tasks.generate:GenerationTask",
        data_keys=("file",),
        planning=PlanningRules(
            sizes=(
                SizeRule({"layers": 4, "width": 128, "inner_width": 512, "heads": 4}),
                SizeRule({"layers": 4, "width": 192, "inner_width": 768, "heads": 6}, min_tokens=3e6),
                SizeRule(
                    {"layers": 6, "width": 256, "inner_width": 1024, "heads": 8}, min_pairs=20_000, min_tokens=60e6
                ),
            ),
            rate=0.0035,
            schedule="cosine",
            batch_tokens=(2048, 4096),
            epochs=10,
            max_dropout=0.2,
            is_running_text=True,
            amounts=(
                (500, "too little text: it will repeat the text or write nonsense; more text helps most"),
                (20_000, "the spelling and style of the text, but hardly any sense"),
                (1 << 62, "fluent sentences in the style of the text"),
            ),
        ),
        defaults={
            "data": {"longest": 256},
            "model": {"architecture": "decoder_only", "activation": "gelu"},
            "training": {"label_smoothing": 0.0},
        },
        requirements={
            ("model", "architecture"): ("decoder_only",),
            ("tokenizer", "kind"): ("characters", "bytes", "bpe", "wordpiece"),
        },
        evaluator="dragoman.cli.evaluators:evaluate_language_model",
    ),
    # A recording has 25 positions per second, and transcripts are spelled in characters.
    "transcribe": TaskSpec(
        task="dragoman.tasks.transcribe:TranscriptionTask",
        data_keys=("file",),
        planning=PlanningRules(
            sizes=(
                SizeRule({"layers": 6, "decoder_layers": 2, "width": 144, "inner_width": 576, "heads": 3}),
                SizeRule(
                    {"layers": 8, "decoder_layers": 3, "width": 256, "inner_width": 1024, "heads": 4},
                    min_pairs=10_000,
                    min_tokens=60e6,
                ),
            ),
            rate=0.002,
            batch_tokens=(1024, 2048),
            max_epochs=400,  # each differs in speeds and masks
            max_dropout=0.2,
            min_tokens=1_000_000,
            enough_tokens=8_000_000,
            amounts=(
                (500, "too few recordings to understand other voices; more recordings help most"),
                (5000, "short utterances like those in the recordings; more recordings help most"),
                (1 << 62, "usable transcripts of speech like that in the recordings"),
            ),
        ),
        defaults={
            "audio": {},
            "data": {"longest": 1500},
            "tokenizer": {"kind": "characters"},
            "model": {"frame_width": 80, "ctc_weight": 0.3, "rotary": True},
            "decoding": {"beam": 8, "extra_length": 10, "ctc_weight": 0.5},
        },
        requirements={
            ("model", "architecture"): ("transformer",),
            ("tokenizer", "joint"): (True,),
        },
        evaluator="dragoman.cli.evaluators:evaluate_transcripts",
    ),
}
DEFAULT_TASK = "translate"
DATA_FILE_KEYS = tuple(
    part + name
    for part in ("", "valid_")
    for name in dict.fromkeys(n for spec in TASKS.values() for n in spec.data_keys)
)

# Settings that a training plans from its data and its budget if the recipe does not set them.
PLANNED_SETTINGS: dict[str, tuple[str, ...]] = {
    "tokenizer": ("kind", "size"),
    "model": ("layers", "decoder_layers", "width", "inner_width", "heads", "dropout", "norm"),
    "training": (
        "steps", "batch_tokens", "accumulate", "schedule", "rate", "warmup", "clip", "validate_every", "patience",
        "checkpoint_every",
    ),
}  # fmt: skip

PRESETS: dict[str, _SettingsTable] = {
    "tiny": {"model": {"layers": 4, "width": 128, "inner_width": 256, "heads": 4}},
    "small": {"model": {"layers": 6, "width": 256, "inner_width": 1024, "heads": 4}},
    # Table 3 of the paper.
    "base": {"model": {"layers": 6, "width": 512, "inner_width": 2048, "heads": 8}},
    "big": {"model": {"layers": 6, "width": 1024, "inner_width": 4096, "heads": 16}},
}


@lru_cache
def import_object(path: str) -> Any:
    """Import the object at a path like "dragoman.tasks.translate:TranslationTask"."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
