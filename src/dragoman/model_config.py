"""The [model] section of a recipe: one class per architecture, each with its own settings.

`architecture` selects the class. A setting that the architecture does not have is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

ArchitectureName = Literal["transformer", "decoder_only", "recurrent", "convs2s", "bytenet", "bag_of_embeddings"]
ScoreName = Literal["scaled_dot", "dot", "additive"]
RecurrentScoreName = Literal["scaled_dot", "dot", "general", "additive", "location", "none"]
PatternName = Literal["full", "window", "dilated", "sparse"]
PositionsName = Literal["sinusoidal", "learned", "none"]
Probability = Annotated[float, Field(ge=0, lt=1)]
AttentionKind = Literal["encoder", "decoder", "cross"]
HeadIndex = tuple[AttentionKind, int, int]  # kind, layer and head, counted from 0

DEFAULT_ARCHITECTURE: ArchitectureName = "transformer"
_ARCHITECTURES = "transformer, decoder_only, recurrent, convs2s, bytenet or bag_of_embeddings"


class Config(BaseModel):
    """A section of the recipe: immutable, without type coercion; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), strict=True, allow_inf_nan=False)

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for each combination of settings that cannot be used together."""
        yield from ()

    @model_validator(mode="after")
    def check_conflicts(self) -> Self:
        """Raise one error for all conflicts."""
        conflicts = list(self.conflicts())
        if conflicts:
            raise ValueError("\n".join(conflicts))
        return self


class ModelConfig(Config):
    """The settings that every architecture has."""

    architecture: ArchitectureName
    layers: int = Field(
        6, ge=1, le=200, description="layers of the encoder, and of the decoder unless set separately (N)"
    )
    width: int = Field(512, ge=2, le=65536, description="size of the vectors between layers (d_model)")
    dropout: Probability = Field(0.1, description="dropout probability of every sub-layer's output (P_drop)")
    share_embeddings: bool = Field(True, description="one embedding matrix for source and target")
    share_output: bool = Field(True, description="use the target embedding as output projection")

    @property
    def decoder_depth(self) -> int:
        """The number of decoder layers."""
        return self.layers


class DecoderLayersConfig(ModelConfig):
    """The settings of architectures whose decoder may have a depth of its own."""

    decoder_layers: int | None = Field(
        None, ge=1, le=200, description="layers of the decoder; unset: same as the encoder"
    )

    @property
    def decoder_depth(self) -> int:
        """The number of decoder layers."""
        return self.decoder_layers or self.layers


class PositionsConfig(ModelConfig):
    """The settings of architectures with positional encodings."""

    positions: PositionsName = Field("sinusoidal", description="positional encoding")
    longest: int = Field(1024, ge=8, le=1_000_000, description="number of learned positions")

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence if sines and cosines cannot be paired."""
        yield from super().conflicts()
        if self.width % 2 and self.positions == "sinusoidal":
            yield f"width {self.width} is odd, but sinusoidal positions need an even width"


class SelfAttentionConfig(PositionsConfig):
    """The settings of architectures made of self-attention and feed-forward layers."""

    inner_width: int = Field(2048, ge=1, le=1 << 20, description="inner size of the feed-forward layers (d_ff)")
    heads: int = Field(8, ge=1, le=1024, description="attention heads (h)")
    key_width: int | None = Field(
        None, ge=1, le=65536, description="size of queries and keys per head (d_k); unset: width / heads"
    )
    value_width: int | None = Field(
        None, ge=1, le=65536, description="size of values per head (d_v); unset: width / heads"
    )
    norm: Literal["post", "pre"] = Field("post", description="normalise after each sub-layer (the paper) or before it")
    activation: Literal["relu", "gelu"] = Field("relu", description="activation between the feed-forward matrices")
    rotary: bool = Field(False, description="rotary position embedding in self-attention, in addition to positions")
    score: ScoreName = Field("scaled_dot", description="attention score; scaled_dot is the paper's")
    pattern: PatternName = Field("full", description="self-attention over all positions or over a local pattern")
    window: int = Field(128, ge=1, le=1_000_000, description="positions per query if pattern is not full (r)")

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for each conflict of widths, heads, scores and patterns."""
        yield from super().conflicts()
        is_one_planned = len({"width", "heads"} & self.model_fields_set) == 1  # to fit the other one
        if self.width % self.heads and None in (self.key_width, self.value_width) and not is_one_planned:
            divisible = -(-self.width // self.heads) * self.heads
            yield f"width {self.width} is not divisible by {self.heads} heads; the next divisible width is {divisible}"
        if self.rotary and self.score == "additive":
            yield 'rotary needs a dot product, but score is "additive"; set score = "scaled_dot" or "dot"'
        key_width = self.key_width or self.width // self.heads
        if self.rotary and key_width % 2 and not is_one_planned:
            yield f"rotary needs an even key_width, got {key_width}"
        if self.pattern != "full" and self.score != "scaled_dot":
            yield f'pattern "{self.pattern}" needs score = "scaled_dot", got "{self.score}"'


class TransformerConfig(SelfAttentionConfig, DecoderLayersConfig):
    """The Transformer; `base` and `big` are rows of the paper's table 3."""

    architecture: Literal["transformer"] = Field("transformer", description=_ARCHITECTURES)
    normalisation: Literal["layer", "batch"] = Field("layer", description="normalise over each vector or the batch")
    next_word: bool = Field(False, description="add the next source word to the decoder's input (task parse)")
    frame_width: int = Field(
        0, ge=0, le=4096, description="numbers per frame if the source is a signal, such as mel bands; 0: text"
    )
    ctc_weight: Probability = Field(
        0.0, description="share of CTC on the encoder's output in the loss (0: no CTC); for sources longer than outputs"
    )

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for settings that a source of frames cannot have."""
        yield from super().conflicts()
        if self.frame_width and not self.share_embeddings:
            yield "frame_width is set, so there is no source vocabulary; set share_embeddings = true"
        if self.frame_width and self.next_word:
            yield "frame_width is set, so there are no source words; set next_word = false"


class DecoderOnlyConfig(SelfAttentionConfig):
    """The decoder-only Transformer: source and target are one sequence, or a language model without source."""

    architecture: Literal["decoder_only"] = Field("decoder_only", description=_ARCHITECTURES)


class RecurrentConfig(DecoderLayersConfig):
    """LSTM or GRU encoder and decoder, with or without attention."""

    architecture: Literal["recurrent"] = Field("recurrent", description=_ARCHITECTURES)
    cell: Literal["lstm", "gru"] = Field("lstm", description="recurrent cell")
    score: RecurrentScoreName = Field("scaled_dot", description="attention score; none: no attention")


class ConvS2SConfig(PositionsConfig, DecoderLayersConfig):
    """ConvS2S: gated convolutions with attention in every decoder layer."""

    architecture: Literal["convs2s"] = Field("convs2s", description=_ARCHITECTURES)
    score: ScoreName = Field("scaled_dot", description="attention score")
    kernel: int = Field(3, ge=1, le=255, description="positions per convolution (k)")


class ByteNetConfig(PositionsConfig, DecoderLayersConfig):
    """ByteNet: dilated convolutions without attention."""

    architecture: Literal["bytenet"] = Field("bytenet", description=_ARCHITECTURES)
    kernel: int = Field(3, ge=1, le=255, description="positions per convolution (k)")


class BagOfEmbeddingsConfig(ModelConfig):
    """The baseline: averaged or concatenated source embeddings and a feed-forward n-gram decoder."""

    architecture: Literal["bag_of_embeddings"] = Field("bag_of_embeddings", description=_ARCHITECTURES)
    pooling: Literal["average", "concatenate"] = Field("average", description="how source embeddings are combined")
    longest: int = Field(1024, ge=8, le=1_000_000, description="number of source positions to concatenate, at most 64")
    inner_width: int = Field(2048, ge=1, le=1 << 20, description="size of the hidden layers")
    activation: Literal["relu", "gelu"] = Field("relu", description="activation between the layers")
    kernel: int = Field(3, ge=1, le=255, description="target tokens that the decoder reads (n-gram length)")


AnyModelConfig = Annotated[
    TransformerConfig | DecoderOnlyConfig | RecurrentConfig | ConvS2SConfig | ByteNetConfig | BagOfEmbeddingsConfig,
    Field(discriminator="architecture"),
]
MODEL_CONFIGS: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "decoder_only": DecoderOnlyConfig,
    "recurrent": RecurrentConfig,
    "convs2s": ConvS2SConfig,
    "bytenet": ByteNetConfig,
    "bag_of_embeddings": BagOfEmbeddingsConfig,
}


def build_model_config(settings: Mapping[str, Any]) -> AnyModelConfig:
    """Return the validated config of the architecture that the settings name; the Transformer by default."""
    architecture = settings.get("architecture", DEFAULT_ARCHITECTURE)
    return cast(AnyModelConfig, MODEL_CONFIGS[architecture].model_validate(settings))


def applicable_settings(table: Mapping[str, Any], architecture: Any) -> dict[str, Any]:
    """Return the settings of a [model] table that an architecture has; all of them if it is unknown."""
    config = MODEL_CONFIGS.get(architecture) if isinstance(architecture, str) else None
    return {key: value for key, value in table.items() if config is None or key in config.model_fields}


_RENAMED_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "joined": {"architecture": "decoder_only"},
    "convolutional": {"architecture": "convs2s"},
    "dilated": {"architecture": "bytenet"},
    "averaged": {"architecture": "bag_of_embeddings", "pooling": "average"},
    "concatenated": {"architecture": "bag_of_embeddings", "pooling": "concatenate"},
}


# Version 0.1 wrote all of these into every recipe, whatever the architecture.
_SETTINGS_0_1 = {
    "architecture", "layers", "width", "inner_width", "heads", "dropout", "norm", "normalisation", "activation",
    "positions", "longest", "score", "pattern", "window", "cell", "kernel", "share_embeddings", "share_output",
}  # fmt: skip


def is_of_version_0_1(table: Mapping[str, Any]) -> bool:
    """Return whether a [model] table was written in full by version 0.1."""
    return table.keys() >= _SETTINGS_0_1


def upgrade_model_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a [model] table that version 0.1 recorded in present settings.

    Settings of other architectures, which had no effect, are dropped. Unknown keys stay, and are refused later.
    """
    table = dict(table)
    if "guide" in table:
        table["next_word"] = table.pop("guide") == "words"
    architecture = table.get("architecture", DEFAULT_ARCHITECTURE)
    if isinstance(architecture, str):
        table |= _RENAMED_ARCHITECTURES.get(architecture, {})
    known = _SETTINGS_0_1.union(*(config.model_fields for config in MODEL_CONFIGS.values()))
    unknown = {key: value for key, value in table.items() if key not in known}
    return applicable_settings(table, table.get("architecture", DEFAULT_ARCHITECTURE)) | unknown


def renamed_setting(key: str, value: Any) -> str | None:
    """Return how a [model] setting of version 0.1 is written now, as TOML; None if it was not renamed."""
    if key == "guide":
        return f"next_word = {str(value == 'words').lower()}"
    if key == "architecture" and isinstance(value, str) and value in _RENAMED_ARCHITECTURES:
        return ", ".join(f'{name} = "{new}"' for name, new in _RENAMED_ARCHITECTURES[value].items())
    return None
