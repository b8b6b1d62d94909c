"""The recipe: every setting of a run, with its default, range and description.

A recipe is read from TOML and validated as a whole before training starts. Each part of the program receives its own
section.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo

from dragoman.errors import UserError, did_you_mean
from dragoman.model_config import (
    DEFAULT_ARCHITECTURE,
    AnyModelConfig,
    Config,
    PositionsConfig,
    Probability,
    TransformerConfig,
    applicable_settings,
    is_of_version_0_1,
    upgrade_model_table,
)
from dragoman.presets import DATA_FILE_KEYS, DEFAULT_TASK, PLANNED_SETTINGS, PRESETS, TASKS
from dragoman.recipe_errors import find_field, format_errors, section_classes
from dragoman.tokens import RESERVED_TOKENS
from dragoman.toml import MAX_DEPTH, display_value, parse_value, read_toml, toml_value


def _check_storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid UTF-8, so a recipe cannot store it; rename the file") from None
    return text


def _check_task(name: str) -> str:
    if name not in TASKS:
        raise ValueError(f"it must be one of {', '.join(map(display_value, TASKS))}")
    return name


# Each step of a search attends to all steps before it: beam · extra_length² is what the longest output costs.
_MAX_SEARCH_WORK = 20_000_000
MAX_LONGEST = 100_000  # tokens of a source or target
StorableText = Annotated[str, AfterValidator(_check_storable)]
TokenizerKind = Literal["bpe", "wordpiece", "characters", "bytes", "words"]


def _check_label(label: str) -> str:
    if not label or set(label) & set(" \t<>"):
        raise ValueError("a label must not be empty and must not have spaces, tabs, < or >")
    return label


def _check_languages(languages: tuple[str, str]) -> tuple[str, str]:
    if languages[0] == languages[1]:
        raise ValueError("source and target must differ")
    return languages


LanguagesSetting = Annotated[tuple[StorableText, StorableText], AfterValidator(_check_languages)] | None


class CorpusConfig(Config):
    """One of several corpora that a model is trained on: a [[data.corpora]] table."""

    file: StorableText | None = Field(None, description="the file: pairs in any format, or a lexicon")
    languages: LanguagesSetting = Field(None, strict=False, description="columns, keys or language codes in file")
    source: StorableText | None = Field(None, description="instead of file: source text")
    target: StorableText | None = Field(None, description="translation of source, aligned line by line")
    label: Annotated[StorableText, AfterValidator(_check_label)] | None = Field(
        None, description="label added before every source, such as a language"
    )


class DataConfig(Config):
    """The files to train on. They may be gzipped (.gz)."""

    source: StorableText | None = Field(None, description="source text, one sentence per line")
    target: StorableText | None = Field(None, description="translation of source, aligned line by line")
    pairs: StorableText | None = Field(
        None, description="instead of source and target: one file of pairs (tab-separated, CSV, JSONL or TMX)"
    )
    languages: LanguagesSetting = Field(
        None,
        strict=False,
        description='source and target in pairs: columns, keys or language codes, as in ["en", "fr"]',
    )
    valid_source: StorableText | None = Field(
        None, description="validation source text; unset: some training pairs are held out"
    )
    valid_target: StorableText | None = Field(None, description="translation of valid_source, aligned line by line")
    valid_pairs: StorableText | None = Field(
        None, description="instead of valid_source and valid_target: one file of pairs; languages apply to it too"
    )
    file: StorableText | None = Field(None, description="for tasks that read one file: a lexicon, a treebank or a text")
    valid_file: StorableText | None = Field(None, description="validation file for tasks that read one file")
    corpora: tuple[CorpusConfig, ...] = Field(
        (),
        strict=False,
        description="instead of these: [[data.corpora]] tables with file, languages, label; or source, target, label",
    )
    valid_corpora: tuple[CorpusConfig, ...] = Field(
        (), strict=False, description="instead of other validation files: several [[data.valid_corpora]] tables"
    )
    held_out: int = Field(1000, ge=1, description="training pairs to hold out if there are no validation files")
    longest: int = Field(256, ge=2, le=MAX_LONGEST, description="maximum tokens per side; longer pairs are skipped")

    def conflicts(self) -> Iterator[str]:
        """Yield a corpus of which one side is missing, and a corpus that is given twice."""
        for part, pairs, source, target in (
            ("", self.pairs, self.source, self.target),
            ("valid_", self.valid_pairs, self.valid_source, self.valid_target),
        ):
            if pairs and (source or target):
                yield f"{part}pairs and {part}source/{part}target cannot both be set; remove one of them"
            others = [name for name in ("file", "source", "target", "pairs") if getattr(self, part + name)]
            if others and getattr(self, part + "corpora"):
                yield f"{part}{others[0]} and {part}corpora cannot both be set; remove one of them"
            if bool(source) != bool(target):
                given, missing = (part + "source", part + "target") if source else (part + "target", part + "source")
                yield f"{given} is set but {missing} is not; a parallel corpus needs both"
        if self.languages and not (self.pairs or self.valid_pairs):
            yield "languages is set but pairs is not; other files have one language each"


class TokenizerConfig(Config):
    """How text is split into tokens."""

    kind: TokenizerKind = Field(
        "bpe", description="bpe, wordpiece, characters, bytes, or words (text already split at spaces)"
    )
    target_kind: TokenizerKind | None = Field(None, description="kind of the target tokenizer; unset: same as kind")
    size: int = Field(8000, ge=8, le=1_000_000, description="maximum size of the vocabulary")
    joint: bool = Field(True, description="share one vocabulary between source and target")
    lowercase: bool = Field(False, description="lowercase the text; a target with its own target_kind keeps its case")

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for a vocabulary that is too small, or kinds that cannot be joint."""
        if self.kind in ("bpe", "wordpiece") and self.size < RESERVED_TOKENS + 256:
            yield (
                f'size {self.size} is too small: kind "{self.kind}" needs at least {RESERVED_TOKENS + 256}, for 256 '
                f'bytes and {RESERVED_TOKENS} reserved tokens; raise size, or set kind = "characters"'
            )
        if self.joint and self.target_kind not in (None, self.kind):
            yield f'target_kind "{self.target_kind}" differs from kind "{self.kind}", so joint must be false'

    @property
    def sides(self) -> tuple["TokenizerConfig", "TokenizerConfig"]:
        """The configs of the source and the target tokenizer.

        A target with its own kind consists of symbols, such as phones or brackets, whose case is significant.
        """
        if self.target_kind is None:
            return self, self
        return self, self.model_copy(update={"kind": self.target_kind, "lowercase": False})


class AudioConfig(Config):
    """Sound as a source: how a recording becomes frames, and how it is varied in training."""

    rate: int = Field(16_000, ge=2000, le=96_000, description="sampling rate in Hz; recordings are converted to it")
    speeds: tuple[Annotated[float, Field(ge=0.5, le=2)], ...] = Field(
        (0.9, 1.0, 1.1),
        strict=False,  # TOML has lists only
        min_length=1,
        max_length=9,
        description="speeds at which each training recording is heard",
    )
    mask_frames: int = Field(
        40, ge=0, le=1000, description="longest stretch of frames hidden in training (SpecAugment); 0: none"
    )
    mask_bands: int = Field(
        20, ge=0, le=1000, description="widest stretch of mel bands hidden in training (SpecAugment); 0: none"
    )


class TrainingConfig(Config):
    """Training (section 5 of the paper)."""

    steps: int = Field(100_000, ge=1, description="maximum number of updates")
    minutes: float = Field(
        0.0, ge=0, description="time limit in minutes, from the start of the command to the score; 0: no limit"
    )
    batch_tokens: int = Field(4096, ge=16, description="tokens per batch on the longer side, including padding")
    accumulate: int = Field(1, ge=1, description="batches per update (gradient accumulation)")
    schedule: Literal["noam", "linear", "cosine", "constant"] = Field(
        "noam",
        description="learning rate schedule after warm-up; noam: the paper's inverse square root",
    )
    rate: float | None = Field(
        None, gt=0, le=10, description="peak learning rate; unset: the paper's, (width · warmup)^-½"
    )
    warmup: int = Field(4000, ge=1, description="warm-up steps")
    betas: tuple[Probability, Probability] = Field(
        (0.9, 0.98),
        strict=False,  # TOML has lists only
        description="Adam's betas",
    )
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    clip: float = Field(0.0, ge=0, description="maximum gradient norm; 0: no clipping")
    label_smoothing: Probability = Field(0.1, description="label smoothing (ε_ls)")
    seed: int = Field(
        1, ge=0, lt=1 << 31, description="random seed; the same seed gives the same result on the same machine"
    )
    validate_every: int = Field(1000, ge=1, description="steps between validations")
    validation_sample: int = Field(200, ge=0, description="validation sentences decoded for the score")
    patience: int = Field(0, ge=0, description="validations without better loss or score until early stopping; 0: off")
    checkpoint_every: int = Field(1000, ge=1, description="steps between checkpoints")
    keep: int = Field(5, ge=1, description="number of newest checkpoints to keep, in addition to the best")
    average: int | None = Field(
        None,
        ge=1,
        description="checkpoints to average for the final model (section 6.1); unset: chosen by validation score",
    )
    average_of: Literal["last", "best"] = Field(
        "last", description="average the newest checkpoints, or those with the lowest loss"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: bfloat16 where the processor supports it"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="device to train on")
    threads: int = Field(0, ge=0, le=1024, description="CPU threads; 0: one per core")

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence if fewer checkpoints are kept than averaged."""
        if self.average and self.average > self.keep:
            yield f"average is {self.average}, but only {self.keep} checkpoints are kept; raise keep"


DecodingPrecision = Literal["float32", "int8"]


class DecodingConfig(Config):
    """Beam search (section 6.1 of the paper)."""

    beam: int = Field(4, ge=1, le=512, description="beam width; 1: greedy search")
    length_penalty: float = Field(
        0.6, ge=0, le=5, description="exponent of the length penalty (α); higher prefers longer outputs"
    )
    extra_length: int = Field(
        50, ge=1, le=100_000, description="maximum output length: the source length plus this many tokens"
    )
    batch_tokens: int = Field(
        4096, ge=16, le=1_000_000, description="tokens per batch, including padding and all hypotheses"
    )
    precision: DecodingPrecision = Field("float32", description="precision of the weights; int8 is faster")
    shortlist: bool = Field(False, description="restrict outputs to likely tokens; run `dragoman shortlist RUN` first")
    ctc_weight: Probability = Field(0.3, description="weight of CTC in the search, for models with [model] ctc_weight")

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence if a search that never ends by itself would take too long."""
        if self.beam * self.extra_length**2 > _MAX_SEARCH_WORK:
            longest = math.isqrt(_MAX_SEARCH_WORK // self.beam)
            yield (
                f"beam = {self.beam} and extra_length = {self.extra_length} would let one output take minutes; with "
                f"this beam, extra_length must be at most {longest}"
            )


class Recipe(Config):
    """All settings of a run."""

    task: Annotated[str, AfterValidator(_check_task)] = Field(DEFAULT_TASK, description=f"the task: {', '.join(TASKS)}")
    run: StorableText = Field("runs/model", description="the run directory")
    data: DataConfig = Field(default_factory=DataConfig)
    audio: AudioConfig | None = Field(None, description="sound as a source, for task transcribe")
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    model: AnyModelConfig = Field(default_factory=TransformerConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)

    def __repr__(self) -> str:
        # Settings that are still to be planned have no value yet.
        return f"Recipe(**{self.given_settings})"

    __str__ = __repr__

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for each conflict between sections, or between the task and a section."""
        named = [name for name in DATA_FILE_KEYS if getattr(self.data, name)]
        foreign = [name for name in named if name.removeprefix("valid_") not in TASKS[self.task].data_keys]
        if foreign:
            yield (
                f'task "{self.task}" reads [data] {", ".join(TASKS[self.task].data_keys)}, not {", ".join(foreign)}; '
                "change the task or the files"
            )
        yield from self._corpora_conflicts()
        reads_sound = "audio" in TASKS[self.task].defaults
        if self.audio is not None and not reads_sound:
            yield f'task "{self.task}" reads no sound; remove [audio]'
        if isinstance(self.model, TransformerConfig) and bool(self.model.frame_width) != reads_sound:
            expected = "at least 1: it reads sound" if reads_sound else "0: it reads text"
            yield f'task "{self.task}" needs [model] frame_width = {expected}'
        for (part, name), fitting in TASKS[self.task].requirements.items():
            value = getattr(getattr(self, part), name)
            if value not in fitting:
                yield (
                    f'task "{self.task}" needs [{part}] {name} = {" or ".join(map(display_value, fitting))}, not '
                    f'"{value}"'
                )
        if self.model.share_embeddings and not self.tokenizer.joint:
            yield (
                "[model] share_embeddings needs one vocabulary for source and target, but [tokenizer] joint is false; "
                "set share_embeddings = false"
            )
        if isinstance(self.model, TransformerConfig) and self.model.next_word and not TASKS[self.task].has_word_tokens:
            names = ", ".join(name for name, spec in TASKS.items() if spec.has_word_tokens)
            yield f'[model] next_word needs task {names}, not "{self.task}"; set next_word = false'
        source, extra = self.data.longest, self.decoding.extra_length
        is_one_sequence = self.model.architecture == "decoder_only"
        needed = source + extra + (source if is_one_sequence else 0)
        model = self.model
        if isinstance(model, PositionsConfig) and model.positions == "learned" and model.longest < needed:
            yield (
                f"[model] longest = {model.longest} is too small for learned positions: a source may have {source} "
                f"tokens ([data] longest) and its output {extra} more ([decoding] extra_length)"
                f"{', in one sequence' if is_one_sequence else ''}; set longest to {needed} or more, or lower one of "
                "the other two settings"
            )

    def _corpora_conflicts(self) -> Iterator[str]:
        """Yield a sentence for each [[data.corpora]] table that the task cannot read."""
        keys = TASKS[self.task].corpus_keys
        for section in ("corpora", "valid_corpora"):
            corpora: tuple[CorpusConfig, ...] = getattr(self.data, section)
            for number, corpus in enumerate(corpora, 1):
                position = f"[[data.{section}]] {number}"
                foreign = [name for name in type(corpus).model_fields if getattr(corpus, name) and name not in keys]
                if foreign:
                    yield f'{position} has {foreign[0]}; task "{self.task}" expects {" and ".join(keys)}'
                elif "source" not in keys:
                    yield from (
                        f"{position} has no {name}; expected {' and '.join(keys)}"
                        for name in keys
                        if getattr(corpus, name) is None
                    )
                elif bool(corpus.file) == bool(corpus.source or corpus.target):
                    yield f"{position}: expected either file, or source and target"
                elif bool(corpus.source) != bool(corpus.target):
                    yield f"{position} has only one of source and target; a parallel corpus needs both"
                elif corpus.languages and not corpus.file:
                    yield f"{position} has languages, which are for a file of pairs; remove them"
                elif bool(corpus.label) != bool(corpora[0].label):
                    yield f"{position}: either all corpora need a label or none"

    @model_validator(mode="wrap")
    @classmethod
    def explain_errors(cls, table: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Raise a UserError for a recipe that is built in Python; `from_table` names its file or option too."""
        try:
            return handler(table)
        except ValidationError as error:
            if info.context is None and isinstance(table, Mapping):
                raise UserError(format_errors(cls, error, "Recipe", table, {})) from None
            raise

    @model_validator(mode="before")
    @classmethod
    def fill_in_defaults(cls, table: Any, info: ValidationInfo) -> Any:
        """Add the task's defaults below the settings, and the default architecture where [model] names none."""
        if not isinstance(table, Mapping):
            return table
        settings = {
            name: value.model_dump(exclude_unset=True) if isinstance(value, Config) else value
            for name, value in table.items()
        }
        if not (info.context or {}).get("is_complete"):
            defaults = _task_defaults(settings.get("task", DEFAULT_TASK))
            settings = merge_tables(_without_inapplicable(defaults, settings), settings)
        if isinstance(settings.get("model"), Mapping):
            settings["model"] = {"architecture": DEFAULT_ARCHITECTURE, **settings["model"]}
        return settings

    @property
    def given_settings(self) -> dict[str, Any]:
        """The settings that were given, by the user, a preset or the task's defaults, as nested dictionaries."""
        return self.model_dump(exclude_unset=True)

    @property
    def unplanned_settings(self) -> list[str]:
        """The dotted names of the settings that were not given and that a training plans from its data and budget."""
        return [
            f"{section}.{name}"
            for section, names in PLANNED_SETTINGS.items()
            for name in names
            if _is_unplanned(section, getattr(self, section), name)
        ]

    @classmethod
    def from_toml(cls, path: str | Path, overrides: Iterable[str] = (), preset: str | None = None) -> "Recipe":
        """Read a recipe file; `overrides` such as "model.layers=4" win over the file."""
        return cls.from_table(read_toml(Path(path)), overrides, preset, origin=str(path))

    @classmethod
    def from_table(
        cls,
        table: Mapping[str, Any],
        overrides: Iterable[str] = (),
        preset: str | None = None,
        origin: str = "recipe",
        *,
        defaults: Mapping[str, Any] = MappingProxyType({}),
        is_complete: bool = False,
    ) -> "Recipe":
        """Build a recipe from nested dictionaries; the table wins over the preset, `overrides` win over the table.

        `defaults` is used like a preset: model settings that the architecture does not have are ignored. A complete
        table is one that a training has recorded. It gets no task defaults, since a setting that it lacks was added
        later, and it may be of an older version.
        """
        parsed: dict[str, Any] = {}
        for override in overrides:
            parsed = merge_tables(parsed, parse_override(override))
        model = table.get("model")
        if isinstance(model, Mapping) and (is_complete or is_of_version_0_1(model)):
            table = {**table, "model": upgrade_model_table(model)}
            if isinstance(table.get("data"), Mapping):
                table = {**table, "data": _upgrade_data_table(table["data"])}
        merged = merge_tables(table, parsed)
        named = merged.pop("preset", None)
        below = merge_tables(defaults, _preset_settings(preset or named, origin))
        settings = merge_tables(_without_inapplicable(below, merged), merged)
        try:
            return cls.model_validate(settings, context={"is_complete": is_complete})
        except ValidationError as error:
            raise UserError(format_errors(cls, error, origin, merged, parsed)) from None

    def to_toml(self, *, comments: bool = False) -> str:
        """Return the recipe as TOML with all defaults; with comments, as a form to edit.

        Settings that are still to be planned have no value.
        """
        lines = [_toml_line(self, name, comments) for name in ("task", "run")]
        for name in type(self).model_fields:
            section = getattr(self, name)
            if isinstance(section, Config):
                lines += ["", *section_lines(name, section, comments=comments)]
        return "\n".join(lines) + "\n"


def _upgrade_data_table(table: Mapping[str, Any]) -> dict[str, Any]:
    # Version 0.1 wrote several files as labelled = ["label=file", …].
    table = dict(table)
    for part in ("", "valid_"):
        if isinstance(table.get(f"{part}labelled"), list):  # anything else is refused later
            entries = [str(entry).partition("=") for entry in table.pop(f"{part}labelled")]
            table[f"{part}corpora"] = [{"label": label, "file": file} for label, _, file in entries]
    return table


def _task_defaults(name: Any) -> dict[str, Any]:
    """Return a task's defaults; empty if the task is unknown."""
    return dict(TASKS[name].defaults) if isinstance(name, str) and name in TASKS else {}


def _preset_settings(name: Any, origin: str) -> dict[str, Any]:
    """Return the settings of a preset."""
    if name is None:
        return {}
    if not isinstance(name, str) or name not in PRESETS:
        raise UserError(
            f'{origin}: unknown preset "{str(name)[:100]}"; expected one of {", ".join(PRESETS)}.'
            f"{did_you_mean(str(name), list(PRESETS))}"
        )
    return dict(PRESETS[name])


def _without_inapplicable(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` without the model settings that the architecture of both tables does not have."""
    models = [table.get("model") for table in (below, above)]
    if not isinstance(models[0], Mapping):
        return dict(below)
    default = models[0].get("architecture", DEFAULT_ARCHITECTURE)
    architecture = models[1].get("architecture", default) if isinstance(models[1], Mapping) else default
    return {**below, "model": applicable_settings(models[0], architecture)}


def apply_preset(table: Mapping[str, Any], preset: str | None, origin: str) -> dict[str, Any]:
    """Return a table with a preset's settings put on top, as far as its architecture has them."""
    return merge_tables(table, _without_inapplicable(_preset_settings(preset, origin), table))


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` updated by the values of `above`, section by section."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merge_tables(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def parse_override(text: str) -> dict[str, Any]:
    """Parse "model.layers=4" into {"model": {"layers": 4}}; a value that is not TOML is a number like .5, or text."""
    path, equals, raw = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise UserError(f'--set {text}: expected section.key=value, as in "--set model.layers=4".')
    value = parse_value(raw.strip(), is_text=_is_text_field(find_field(Recipe, keys)))
    for key in reversed(keys):
        value = {key: value}
    return dict(value)


def _is_text_field(field: FieldInfo | None) -> bool:
    return field is not None and field.annotation in (str, StorableText | None)


def section_lines(name: str, section: Config, *, comments: bool) -> list[str]:
    """Return the TOML lines of one section."""
    heading = [f"# {type(section).__doc__}"] if comments else []
    settings = [
        _toml_line(section, key, comments, is_planned=_is_unplanned(name, section, key))
        for key in type(section).model_fields
    ]
    return [*heading, f"[{name}]", *settings]


def _is_unplanned(section: str, config: Config, name: str) -> bool:
    """Return whether a setting of a section was not given and is planned when a training starts."""
    has_setting = name in type(config).model_fields
    return has_setting and name in PLANNED_SETTINGS.get(section, ()) and name not in config.model_fields_set


def _toml_line(branch: Config, name: str, comments: bool, *, is_planned: bool = False) -> str:
    field, value = type(branch).model_fields[name], None if is_planned else getattr(branch, name)
    line = f"{name} = {toml_value(value)}" if value is not None else f"# {name} ="
    if not comments:
        return line
    choices = get_args(field.annotation) if all(isinstance(c, str) for c in get_args(field.annotation)) else ()
    note = field.description or ""
    if choices and any(c not in note for c in choices):
        note += f" ({', '.join(choices)})"
    return f"{line:<31} # {note}"


def recipe_differences(before: Recipe, after: Recipe) -> list[str]:
    """Return the settings in which two recipes differ, as "model.layers: 4 before, 6 now"."""
    old, new = dict(flatten_settings(before)), dict(flatten_settings(after))
    return [
        f"{path}: {display_value(old.get(path))} before, {display_value(new.get(path))} now"
        for path in {**old, **new}
        if old.get(path) != new.get(path)
    ]


def flatten_settings(branch: Config, prefix: str = "") -> list[tuple[str, Any]]:
    """Return all settings of a config with their dotted names; a section that the task does not have has none."""
    settings: list[tuple[str, Any]] = []
    for name in type(branch).model_fields:
        value = getattr(branch, name)
        if value is None and section_classes(type(branch), name):
            continue
        settings += (
            flatten_settings(value, f"{prefix}{name}.") if isinstance(value, Config) else [(prefix + name, value)]
        )
    return settings
