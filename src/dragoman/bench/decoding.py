"""Measure decoding: sentences and tokens per second in bulk, and the latency of single sentences."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from dragoman.bench.config import BEAMS, BenchmarkConfig
from dragoman.bench.ctranslate2_engine import CTranslate2Decoder, CTranslate2Options
from dragoman.bench.data import BenchmarkText
from dragoman.bench.dragoman_engine import DragomanDecoder
from dragoman.bench.flops import decoding_flops
from dragoman.bench.huggingface_engine import HuggingFaceDecoder
from dragoman.bench.machine import installed_version
from dragoman.bench.stats import SampleStats
from dragoman.bench.timing import TimedDecoder, TimedOutputs, TokenSequence, TurnMode
from dragoman.bench.workers import OWN_PREFIX, EngineSpec, OnBenchmarkNotice, engine_spec, start_engines
from dragoman.errors import UserError
from dragoman.evaluation.scores import corpus_bleu
from dragoman.interop.ctranslate2 import export_run, vocabulary_pieces
from dragoman.model_config import TransformerConfig
from dragoman.tasks.translate import Translator
from dragoman.tokens import END

_PRECISIONS = ("float32", "int8")
SOURCE_TOKENS, OUTPUT_TOKENS = 15, 25  # of every sentence, if the weights are random
_MODES: tuple[TurnMode, TurnMode] = ("bulk", "one at a time")


@dataclass(frozen=True)
class BenchmarkSentences:
    """The sentences that all engines translate."""

    origin: str
    sources: list[TokenSequence]
    references: list[str] | None
    fixed_length: bool = False  # sources and outputs of fixed lengths, because the weights are random


@dataclass(frozen=True)
class DecodingResult:
    """The speed of one engine with one model and beam width."""

    model: str
    engine: str
    beam: int
    batch_size: str
    speed: SampleStats  # sentences per second, in bulk
    token_speed: SampleStats  # output tokens per second, in bulk
    latency: SampleStats  # milliseconds per single sentence: the median of each turn
    latency_95: SampleStats  # 95th percentile
    output_lengths: tuple[int, int]  # shortest and longest output
    bleu: float | None
    flops: float  # per sentence


def tokenize_sentences(
    text: BenchmarkText, translator: Translator, config: BenchmarkConfig, on_notice: OnBenchmarkNotice
) -> BenchmarkSentences:
    """Tokenize the first sentences; skip those that exceed the maximum length of the model."""
    references = text.references or [""] * len(text.sources)
    tokens = [
        (translator.source_tokens(source), reference)
        for source, reference in zip(text.sources, references, strict=True)
        if source.strip()
    ][: config.sentences]
    readable = [row for row in tokens if len(row[0]) <= translator.max_length]
    if len(readable) < len(tokens):
        left_out = len(tokens) - len(readable)
        on_notice(f"{text.origin}: sentences skipped because they exceed {translator.max_length} tokens: {left_out:,}.")
    if not readable:
        raise _no_sentences_error(text)
    sources, kept_references = zip(*readable, strict=True)
    return BenchmarkSentences(text.origin, list(sources), list(kept_references) if text.references else None)


def fixed_length_sentences(text: BenchmarkText, translator: Translator, config: BenchmarkConfig) -> BenchmarkSentences:
    """Cut or repeat each source to the same length; the outputs have no references."""
    tokenized = (translator.source_tokens(source)[:-1] for source in text.sources if source.strip())
    rows = [tokens for tokens in tokenized if tokens]
    if not rows:
        raise _no_sentences_error(text)
    repeated = [rows[index % len(rows)] for index in range(config.sentences)]
    sources = [[*(row * SOURCE_TOKENS)[:SOURCE_TOKENS], END] for row in repeated]
    return BenchmarkSentences(f"{text.origin}, {SOURCE_TOKENS} tokens each", sources, None, fixed_length=True)


def _no_sentences_error(text: BenchmarkText) -> UserError:
    return UserError(f"{text.origin}: no sentence can be translated; give another --source.")


def measure_decoding(
    name: str,
    run: Path,
    sentences: BenchmarkSentences,
    config: BenchmarkConfig,
    rounds: Iterable[int],
    on_notice: OnBenchmarkNotice,
) -> list[DecodingResult]:
    """Let the engines decode in turns; every engine does all tasks in every round."""
    translator = Translator.load(run, device="cpu")
    with (
        decoding_engines(run, translator, sentences, config, on_notice) as specs,
        start_engines(specs, on_notice, config.workload.pause_seconds) as engines,
    ):
        batch_sizes = {
            (engine.name, beam): TimedOutputs(**engine.run_turn("warm-up", beam)).batch_size
            for beam in BEAMS
            for engine in engines.values()
        }
        answers: dict[tuple[str, int, TurnMode], list[TimedOutputs]] = {}
        for _ in rounds:
            for beam in BEAMS:
                for mode in _MODES:
                    for engine in engines.values():
                        timed = TimedOutputs(**engine.run_turn(mode, beam))
                        answers.setdefault((engine.name, beam, mode), []).append(timed)
    results = []
    for (engine_name, beam), batch_size in batch_sizes.items():
        bulk, single = (answers[engine_name, beam, mode] for mode in _MODES)
        results.append(_decoding_result(name, engine_name, beam, batch_size, bulk, single, sentences, translator))
    _report_unexpected_lengths(results, sentences, on_notice)
    return results


@contextmanager
def decoding_engines(
    run: Path,
    translator: Translator,
    sentences: BenchmarkSentences,
    config: BenchmarkConfig,
    on_notice: OnBenchmarkNotice,
) -> Iterator[dict[str, EngineSpec]]:
    """Yield the engines to compare; the exported models exist until the context ends."""

    def timed(decoder: type, *arguments: Any) -> EngineSpec:
        return engine_spec(TimedDecoder, engine_spec(decoder, *arguments), sentences.sources, config.singles)

    specs = {
        f"{OWN_PREFIX} {precision}": timed(DragomanDecoder, str(run), config.threads, precision)
        for precision in _PRECISIONS
    }
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as folder:
        if _is_installed("CTranslate2", "ctranslate2", on_notice):
            vocabularies = (
                vocabulary_pieces(translator.source_tokenizer),
                vocabulary_pieces(translator.target_tokenizer),
            )
            for options, exported in _export_models(
                run, Path(folder), ctranslate2_options(translator, sentences, config), on_notice
            ):
                specs[str(options)] = timed(CTranslate2Decoder, str(exported), *vocabularies, asdict(options))
        if (
            sentences.fixed_length
            and config.workload.has_hugging_face
            and _is_installed("Hugging Face Transformers", "transformers", on_notice)
        ):
            vocabulary = len(translator.target_tokenizer)
            model_config = translator.recipe.model.model_dump(mode="json")
            specs["Hugging Face generate"] = timed(
                HuggingFaceDecoder, model_config, vocabulary, OUTPUT_TOKENS, config.threads
            )
        yield specs


def _is_installed(name: str, package: str, on_notice: OnBenchmarkNotice) -> bool:
    is_installed = installed_version(package) is not None
    if not is_installed:
        on_notice(
            f"{name} is skipped because it is not installed; "
            'run `pip install -e ".[bench]"` in the directory of Dragoman.'
        )
    return is_installed


def ctranslate2_options(
    translator: Translator, sentences: BenchmarkSentences, config: BenchmarkConfig
) -> list[CTranslate2Options]:
    """Return the CTranslate2 configurations: both precisions, with one worker and with one worker per thread."""
    decoding = translator.recipe.decoding
    max_length = max(map(len, sentences.sources)) - 1 + decoding.extra_length
    lengths = (OUTPUT_TOKENS, OUTPUT_TOKENS) if sentences.fixed_length else (max_length, 1)
    shares = sorted({(1, config.threads), (config.threads, 1)})
    return [
        CTranslate2Options(quantization, workers, threads, *lengths, decoding.length_penalty)
        for quantization in _PRECISIONS
        for workers, threads in shares
    ]


def _export_models(
    run: Path, folder: Path, options: list[CTranslate2Options], on_notice: OnBenchmarkNotice
) -> Iterator[tuple[CTranslate2Options, Path]]:
    """Export the model once per precision; skip what CTranslate2 does not support."""
    for configuration in options:
        path = folder / configuration.quantization
        try:
            yield (
                configuration,
                path if path.exists() else export_run(run, path, quantization=configuration.quantization),
            )
        except UserError as error:
            on_notice(f"{configuration} is skipped: {error}")


def _decoding_result(
    model: str, engine: str, beam: int, batch_size: str, bulk: list[TimedOutputs], single: list[TimedOutputs],
    sentences: BenchmarkSentences, translator: Translator,
) -> DecodingResult:  # fmt: skip
    outputs = bulk[0].outputs
    lengths = [len(output) for output in outputs]
    model_config, vocabulary = cast(TransformerConfig, translator.recipe.model), len(translator.target_tokenizer)
    work = [
        decoding_flops(model_config, vocabulary, len(source), length, beam)
        for source, length in zip(sentences.sources, lengths, strict=True)
    ]
    texts = [translator.target_tokenizer.decode(output) for output in outputs] if sentences.references else []
    return DecodingResult(
        model, engine, beam, batch_size,
        speed=SampleStats.from_values([len(result.outputs) / result.seconds[0] for result in bulk]),
        token_speed=SampleStats.from_values([sum(map(len, result.outputs)) / result.seconds[0] for result in bulk]),
        latency=SampleStats.from_values([1000 * float(np.percentile(result.seconds, 50)) for result in single]),
        latency_95=SampleStats.from_values([1000 * float(np.percentile(result.seconds, 95)) for result in single]),
        output_lengths=(min(lengths), max(lengths)),
        bleu=corpus_bleu(texts, sentences.references) if sentences.references else None,
        flops=sum(work) / len(work),
    )  # fmt: skip


def _report_unexpected_lengths(
    results: list[DecodingResult], sentences: BenchmarkSentences, on_notice: OnBenchmarkNotice
) -> None:
    """Report engines whose outputs do not have the fixed length, because their speeds cannot be compared."""
    for result in results if sentences.fixed_length else ():
        if result.output_lengths != (OUTPUT_TOKENS, OUTPUT_TOKENS):
            shortest, longest = result.output_lengths
            on_notice(
                f"{result.engine}, beam {result.beam}: outputs have {shortest}–{longest} tokens; "
                f"expected {OUTPUT_TOKENS}."
            )
