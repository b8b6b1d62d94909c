"""Export to CTranslate2. The directory appears complete or not at all.

The exported model computes the same logits; the search is CTranslate2's. `docs/decisions/0009-export.md` says where
its search differs from ours.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.errors import UserError, did_you_mean
from dragoman.model_config import TransformerConfig
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.layers import FeedForward
from dragoman.models.positions import LearnedPositions, NoPositions, sinusoids
from dragoman.models.transformer import DecoderLayer, EncoderLayer, Transformer
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.storage import atomic_directory
from dragoman.tasks.registry import task_for
from dragoman.tasks.sequence_model import SequenceModel, load
from dragoman.text.tokenizer import Tokenizer
from dragoman.text.vocabulary import RESERVED_NAMES
from dragoman.tokens import END, START, UNKNOWN
from dragoman.toml import toml_value

_FORMATS = ("ctranslate2",)
QUANTIZATIONS = (
    "float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16",
)  # fmt: skip
_MODEL_FILES = (
    "model.bin",
    "config.json",
    "shared_vocabulary.json",
    "source_vocabulary.json",
    "target_vocabulary.json",
)
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.source.json", "tokenizer.target.json")
EXPORTED_FILES = {*_MODEL_FILES, *_TOKENIZER_FILES, "README.md"}  # nothing else may be in a folder that is replaced

_SUPPORTED_SETTINGS = {  # what CTranslate2 can compute, by the setting of [model]
    "architecture": ("transformer",),
    "score": ("scaled_dot",),
    "pattern": ("full",),
    "normalisation": ("layer",),
    "positions": ("sinusoidal", "learned", "none"),
    "rotary": (False,),
}
_MAX_INPUT_LENGTH = 1024  # pieces of a source that CTranslate2 reads unless told otherwise
# CTranslate2 divides by n^α, we by ((5 + n) / 6)^α. The two prefer length alike where its α is ours times n / (n + 5):
# this is so at n = 15, and around it the two agree best on Multi30k's validation text.
_PENALTY_FACTOR = 0.75
_PATIENCE = 2.0  # CTranslate2 stops at `beam` finished hypotheses times this; more does not change the best one


def export_run(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    to: str = "ctranslate2",
    quantization: str = "float32",
    overwrite: bool = False,
) -> Path:
    """Write the model of a run for another engine into a new directory, or replace an older export."""
    _check_choice("--to", to, _FORMATS)
    _check_choice("--quantization", quantization, QUANTIZATIONS)
    folder = Path(folder)
    _check_output_folder(folder, overwrite=overwrite)
    translator = load(run, device="cpu")
    _check_supported(translator.recipe, Run(run))
    spec = _model_spec(translator)
    with ExitStack() as stack:
        temporary = _open_output(stack, folder)
        spec.validate()
        spec.optimize(quantization=quantization)
        spec.save(str(temporary))
        _write_tokenizers(temporary, translator)
        (temporary / "README.md").write_text(_export_readme(translator, quantization), encoding="utf-8")
    return folder


def search_options(
    translator: SequenceModel, beam: int | None = None, length_penalty: float | None = None
) -> dict[str, Any]:
    """Return the options of `ctranslate2.Translator.translate_batch` that are closest to our search."""
    recipe, config = translator.recipe, translator.decoding_config(beam, length_penalty)
    penalty = {"length_penalty": round(_PENALTY_FACTOR * config.length_penalty, 2), "patience": _PATIENCE}
    return {
        "beam_size": config.beam,
        **(penalty if config.beam > 1 else {}),
        "max_input_length": min(
            _MAX_INPUT_LENGTH, len(_position_vectors(_transformer(translator).source_positions, recipe)) - 1
        ),
        "max_decoding_length": recipe.data.longest + config.extra_length,
    }


def _check_choice(option: str, name: str, known: Sequence[str]) -> None:
    """Raise an error for an unknown choice."""
    if name not in known:
        raise UserError(f'{option} "{name}" is unknown; choose {", ".join(known)}.{did_you_mean(name, list(known))}')


def _check_supported(recipe: Recipe, run: Run) -> None:
    """Raise an error for a model that CTranslate2 cannot compute, or a task that it cannot do."""
    config, task = recipe.model, task_for(recipe)
    if not task.raw_text_io:
        raise UserError(
            f"{run} cannot be exported: CTranslate2 does not support the input and output of a {task.noun}. Only "
            "models with plain text as input and output, such as translators, can be exported."
        )
    for name, known in _SUPPORTED_SETTINGS.items():
        if getattr(config, name, None) not in known:
            raise UserError(
                f"{run} cannot be exported: its [model] {name} is {toml_value(getattr(config, name))}, which "
                f"CTranslate2 does not support. Only models trained with {name} = "
                f"{' or '.join(map(toml_value, known))} can be exported."
            )
    assert isinstance(config, TransformerConfig), f"expected a Transformer, got {config.architecture}"
    head_width = config.width / config.heads
    for name, width in (("key_width", config.key_width), ("value_width", config.value_width)):
        if width not in (None, head_width):
            raise UserError(
                f"{run} cannot be exported: its [model] {name} is {width}, but CTranslate2 requires "
                f"width / heads = {head_width:g}. Only models trained without {name} can be exported."
            )


def _check_output_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise an error for a directory that is not empty, unless it is an export and may be replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; --output needs a directory.")
    names = sorted(path.name for path in folder.iterdir())
    unexpected = [name for name in names if name not in EXPORTED_FILES]
    if unexpected:
        raise UserError(f"{folder} contains {unexpected[0]}, which is not part of an export; choose another --output.")
    if names and not overwrite:
        raise UserError(
            f"{folder} already contains an export; choose another --output, or replace it with --overwrite."
        )


def _open_output(stack: ExitStack, folder: Path) -> Path:
    try:
        folder.resolve().parent.mkdir(parents=True, exist_ok=True)
        return stack.enter_context(atomic_directory(folder.resolve(), overwrite=True))
    except OSError as error:
        raise UserError(
            f"{folder}: this directory cannot be created ({error.strerror}); choose another --output."
        ) from None


def _write_tokenizers(folder: Path, translator: SequenceModel) -> None:
    """Write the tokenizers under the same names as in a run directory."""
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    files = Run(folder).tokenizer_files(translator.recipe.tokenizer.joint)
    for file, tokenizer in zip(files, tokenizers, strict=False):
        file.write_text(tokenizer.to_json(), encoding="utf-8")


def _model_spec(translator: SequenceModel) -> Any:
    """Return CTranslate2's specification of the model, with its parameters."""
    try:
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation
    except ImportError as error:
        raise UserError(
            f'CTranslate2 cannot be imported ({error}); run `pip install -e ".[bench]"` in the directory of Dragoman.'
        ) from None
    config = _transformer_config(translator.recipe)
    spec = TransformerSpec.from_config(
        (config.layers, config.decoder_depth),
        config.heads,
        pre_norm=config.norm == "pre",
        activation={"relu": Activation.RELU, "gelu": Activation.GELU}[config.activation],
    )
    _fill_encoder(spec.encoder, _transformer(translator), translator.recipe)
    _fill_decoder(spec.decoder, _transformer(translator), translator.recipe)
    spec.register_source_vocabulary(vocabulary_pieces(translator.source_tokenizer))
    spec.register_target_vocabulary(vocabulary_pieces(translator.target_tokenizer))
    _set_special_tokens(spec.config)
    return spec


def _transformer_config(recipe: Recipe) -> TransformerConfig:
    assert isinstance(recipe.model, TransformerConfig), f"expected a Transformer, got {recipe.model.architecture}"
    return recipe.model


def _transformer(translator: SequenceModel) -> Transformer:
    """Return the model, which `_check_supported` found to be a Transformer."""
    assert isinstance(translator.model, Transformer), f"expected Transformer, got {type(translator.model).__name__}"
    return translator.model


def _set_special_tokens(config: Any) -> None:
    """Set the names of the reserved pieces; sources end with END, targets start with START."""
    config.unk_token = RESERVED_NAMES[UNKNOWN]
    config.bos_token = config.decoder_start_token = RESERVED_NAMES[START]
    config.eos_token = RESERVED_NAMES[END]
    config.add_source_bos = False
    config.add_source_eos = True
    config.layer_norm_epsilon = nn.LayerNorm(1).eps


def vocabulary_pieces(tokenizer: Tokenizer) -> list[str]:
    """Return the pieces of the vocabulary in the order of their ids."""
    vocabulary = tokenizer.backend.get_vocab()
    return sorted(vocabulary, key=lambda piece: int(vocabulary[piece]))


def _fill_encoder(encoder: Any, model: Transformer, recipe: Recipe) -> None:
    """Copy the encoder's parameters into CTranslate2's specification."""
    # The row of PAD goes along as it is: CTranslate2 tells padding by the lengths and never reads it.
    encoder.embeddings[0].weight = model.source_embedding.weight
    encoder.position_encodings.encodings = _position_vectors(model.source_positions, recipe)
    if _transformer_config(recipe).norm == "pre":
        _copy_parameters(encoder.layer_norm, model.encoder_norm)
    for spec, module in zip(encoder.layer, model.encoder, strict=True):
        layer = cast(EncoderLayer, module)
        _fill_self_attention(spec.self_attention, layer.attention, layer.attention_residual.norm)
        _fill_feed_forward(spec.ffn, layer.feed_forward, layer.feed_forward_residual.norm)


def _fill_decoder(decoder: Any, model: Transformer, recipe: Recipe) -> None:
    """Copy the decoder's parameters into CTranslate2's specification."""
    decoder.embeddings.weight = model.target_embedding.weight
    decoder.position_encodings.encodings = _position_vectors(model.target_positions, recipe)
    decoder.projection.weight = model.output_weight
    if _transformer_config(recipe).norm == "pre":
        _copy_parameters(decoder.layer_norm, model.decoder_norm)
    for spec, module in zip(decoder.layer, model.decoder, strict=True):
        layer = cast(DecoderLayer, module)
        _fill_self_attention(spec.self_attention, layer.attention, layer.attention_residual.norm)
        cross = layer.cross_attention
        _copy_parameters(spec.attention.layer_norm, layer.cross_attention_residual.norm)
        _copy_parameters(spec.attention.linear[0], cross.query)
        _copy_parameters(spec.attention.linear[1], cross.key, cross.value)
        _copy_parameters(spec.attention.linear[2], cross.output)
        _fill_feed_forward(spec.ffn, layer.feed_forward, layer.feed_forward_residual.norm)


def _fill_self_attention(spec: Any, attention: MultiHeadAttention, norm: nn.Module) -> None:
    """Copy a self-attention; CTranslate2 computes queries, keys and values in one product."""
    _copy_parameters(spec.layer_norm, norm)
    _copy_parameters(spec.linear[0], attention.query, attention.key, attention.value)
    _copy_parameters(spec.linear[1], attention.output)


def _fill_feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.Module) -> None:
    """Copy a feed-forward layer."""
    _copy_parameters(spec.layer_norm, norm)
    _copy_parameters(spec.linear_0, feed_forward.inner)
    _copy_parameters(spec.linear_1, feed_forward.outer)


def _copy_parameters(spec: Any, *modules: nn.Module) -> None:
    """Copy the parameters of a module, or of several modules concatenated."""
    weight, bias = (
        torch.cat([cast(Tensor, getattr(module, name)).detach() for module in modules]) for name in ("weight", "bias")
    )
    if isinstance(modules[0], nn.LayerNorm):
        spec.gamma, spec.beta = weight, bias
    else:
        spec.weight, spec.bias = weight, bias


def _position_vectors(positions: nn.Module, recipe: Recipe) -> Tensor:
    """Return the position vectors for all positions that CTranslate2 may need."""
    if isinstance(positions, LearnedPositions):
        return positions.table.detach()
    enough = max(_MAX_INPUT_LENGTH + 1, recipe.data.longest + recipe.decoding.extra_length)
    if isinstance(positions, NoPositions):
        return cast(Tensor, positions(0, enough))
    return sinusoids(enough, recipe.model.width)


_README = """\
# {name}, for CTranslate2

A Dragoman model exported for [CTranslate2](https://opennmt.net/CTranslate2/), with {quantization} weights. To
translate, run `pip install ctranslate2 tokenizers`, then run this code in this directory:

```python
import ctranslate2
from tokenizers import Tokenizer

source = Tokenizer.from_file("{source}")
target = Tokenizer.from_file("{target}")
translator = ctranslate2.Translator(".")


def translate(texts: list[str]) -> list[str]:
    pieces = [source.encode(text).tokens for text in texts]
    found = translator.translate_batch(
        pieces,
{options}
        max_batch_size=64,
    )
    tokens = [[target.token_to_id(piece) for piece in best.hypotheses[0]] for best in found]
    return [target.decode(row, skip_special_tokens=False) for row in tokens]


print(translate(["{example}"])[0])
```

CTranslate2 adds `{end}` after the source and `{start}` before the target automatically.

The recipe uses a beam of {beam} and a length penalty of {penalty:g}. CTranslate2 uses a different formula for the
length penalty, so its `length_penalty` has a different value; the options above approximate the recipe.

The model was trained on texts of up to {longest} tokens. Split longer texts into sentences; otherwise the translations
are poor.
"""


def _export_readme(translator: SequenceModel, quantization: str) -> str:
    """Return the README of an export."""
    recipe = translator.recipe
    files = [file.name for file in Run("").tokenizer_files(recipe.tokenizer.joint)]
    return _README.format(
        name=translator.name,
        quantization=quantization,
        source=files[0],
        target=files[-1],
        options="\n".join(f"        {name}={value}," for name, value in search_options(translator).items()),
        example="A dog runs through the snow.",
        start=RESERVED_NAMES[START],
        end=RESERVED_NAMES[END],
        beam=recipe.decoding.beam,
        penalty=recipe.decoding.length_penalty,
        longest=translator.max_length - 1,
    )
