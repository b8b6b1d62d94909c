"""Decoding, side by side: sentences and tokens a second in bulk, and how long one sentence takes by itself."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dragoman.bench.config import BEAMS, BenchmarkConfig
from dragoman.bench.ctranslate2_engine import CTranslate2Decoder, CTranslate2Options
from dragoman.bench.data import BenchmarkText
from dragoman.bench.dragoman_engine import DragomanDecoder
from dragoman.bench.flops import decoding_flops
from dragoman.bench.huggingface_engine import HuggingFaceDecoder
from dragoman.bench.machine import installed_version
from dragoman.bench.stats import SampleStats, percentile
from dragoman.bench.timing import TimedDecoder, TimedOutputs, TokenSequence, TurnMode
from dragoman.bench.workers import OWN_PREFIX, EngineFactory, OnBenchmarkNotice, start_engines
from dragoman.errors import UserError
from dragoman.evaluation.scores import corpus_bleu
from dragoman.interop.ctranslate2 import export_run, vocabulary_pieces
from dragoman.model_config import TransformerConfig
from dragoman.tasks.translator import Translator, load
from dragoman.tokens import END

_PRECISIONS = ("float32", "int8")
SOURCE_PIECES, OUTPUT_PIECES = 15, 25  # of every sentence where the weights are random
_MODES: tuple[TurnMode, TurnMode] = ("bulk", "one at a time")


@dataclass(frozen=True)
class BenchmarkSentences:
    """What everybody translates."""

    origin: str
    sources: list[TokenSequence]
    references: list[str] | None
    fixed_length: bool = False  # sources and outputs of fixed lengths, because the weights are random


@dataclass(frozen=True)
class DecodingResult:
    """How fast one contender decoded with one model at one beam."""

    model: str
    engine: str
    beam: int
    batch_size: str  # of what size
    speed: SampleStats  # sentences a second, in bulk
    token_speed: SampleStats  # output tokens a second, in bulk
    latency: SampleStats  # milliseconds for one sentence by itself: the median of each turn
    latency_95: SampleStats  # and its 95th percentile
    output_lengths: tuple[int, int]  # of the shortest and the longest output
    bleu: float | None
    flops: float  # for one sentence


def tokenize_sentences(
    text: BenchmarkText, translator: Translator, config: BenchmarkConfig, on_notice: OnBenchmarkNotice
) -> BenchmarkSentences:
    """Cut the first sentences into pieces; those that the model cannot read at once are left out."""
    references = text.references or [""] * len(text.sources)
    tokens = [
        (translator.source_tokens(source), reference)
        for source, reference in zip(text.sources, references, strict=True)
        if source.strip()
    ][: config.sentences]
    readable = [row for row in tokens if len(row[0]) <= translator.max_length]
    if len(readable) < len(tokens):
        left_out = len(tokens) - len(readable)
        on_notice(f"{text.origin}: {left_out:,} sentences of more than {translator.max_length} pieces are left out.")
    if not readable:
        raise _no_sentences_error(text)
    sources, kept = zip(*readable, strict=True)
    return BenchmarkSentences(text.origin, list(sources), list(kept) if text.references else None)


def fixed_length_sentences(text: BenchmarkText, translator: Translator, config: BenchmarkConfig) -> BenchmarkSentences:
    """Cut or repeat each source to the same length; there is nothing to compare the outputs with."""
    drawn = (translator.source_tokens(source)[:-1] for source in text.sources if source.strip())
    tokens = [tokens for tokens in drawn if tokens]
    if not tokens:
        raise _no_sentences_error(text)
    again = [tokens[number % len(tokens)] for number in range(config.sentences)]
    sources = [[*(row * SOURCE_PIECES)[:SOURCE_PIECES], END] for row in again]
    return BenchmarkSentences(f"{text.origin}, {SOURCE_PIECES} pieces each", sources, None, fixed_length=True)


def _no_sentences_error(text: BenchmarkText) -> UserError:
    """Say that a text has no sentence."""
    return UserError(f"{text.origin}: there is no sentence that can be translated; give another --source.")


def measure_decoding(
    name: str,
    run: Path,
    sentences: BenchmarkSentences,
    config: BenchmarkConfig,
    rounds: Iterable[int],
    on_notice: OnBenchmarkNotice,
) -> list[DecodingResult]:
    """Let the contenders decode in turns; in every round each one does everything."""
    translator = load(run, device="cpu")
    with (
        decoding_engines(run, translator, sentences, config, on_notice) as makes,
        start_engines(makes, on_notice, config.workload.pause_seconds) as workers,
    ):
        batches = {
            (worker.name, beam): worker.run_turn("warm-up", beam).batch_size
            for beam in BEAMS
            for worker in workers.values()
        }
        answers: dict[tuple[str, int, TurnMode], list[TimedOutputs]] = {}
        for _ in rounds:
            for beam in BEAMS:
                for way in _MODES:
                    for worker in workers.values():
                        answers.setdefault((worker.name, beam, way), []).append(worker.run_turn(way, beam))
    results = []
    for (contender, beam), size in batches.items():
        bulk, single = (answers[contender, beam, way] for way in _MODES)
        results.append(_decoding_result(name, contender, beam, size, bulk, single, sentences, translator))
    _report_unexpected_lengths(results, sentences, on_notice)
    return results


@contextmanager
def decoding_engines(
    run: Path,
    translator: Translator,
    sentences: BenchmarkSentences,
    config: BenchmarkConfig,
    on_notice: OnBenchmarkNotice,
) -> Iterator[dict[str, EngineFactory]]:
    """Return who takes part; the exports that some of them read are there as long as they are."""

    def made(kind: Any, *arguments: Any) -> EngineFactory:
        return TimedDecoder, (kind, arguments, sentences.sources, config.singles)

    found = {
        f"{OWN_PREFIX} {precision}": made(DragomanDecoder, run, config.threads, precision) for precision in _PRECISIONS
    }
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as folder:
        if _is_installed("CTranslate2", "ctranslate2", on_notice):
            vocabularies = (
                vocabulary_pieces(translator.source_tokenizer),
                vocabulary_pieces(translator.target_tokenizer),
            )
            for how, place in _export_models(
                run, Path(folder), ctranslate2_options(translator, sentences, config), on_notice
            ):
                found[str(how)] = made(CTranslate2Decoder, place, *vocabularies, how)
        if (
            sentences.fixed_length
            and config.workload.has_hugging_face
            and _is_installed("Hugging Face Transformers", "transformers", on_notice)
        ):
            vocabulary = len(translator.target_tokenizer)
            found["Hugging Face generate"] = made(
                HuggingFaceDecoder, translator.recipe.model, vocabulary, OUTPUT_PIECES, config.threads
            )
        yield found


def _is_installed(name: str, package: str, on_notice: OnBenchmarkNotice) -> bool:
    """Say whether a rival is installed."""
    there = installed_version(package) is not None
    if not there:
        on_notice(f'{name} is not installed, so it is left out: pip install "dragoman[bench]".')
    return there


def ctranslate2_options(
    translator: Translator, sentences: BenchmarkSentences, config: BenchmarkConfig
) -> list[CTranslate2Options]:
    """Return the ways to run CTranslate2: in either precision, one worker with all threads, and a worker a thread."""
    own = translator.recipe.decoding
    longest = max(map(len, sentences.sources)) - 1 + own.extra_length
    lengths = (OUTPUT_PIECES, OUTPUT_PIECES) if sentences.fixed_length else (longest, 1)
    shares = sorted({(1, config.threads), (config.threads, 1)})
    return [
        CTranslate2Options(quantization, workers, threads, *lengths, own.length_penalty)
        for quantization in _PRECISIONS
        for workers, threads in shares
    ]


def _export_models(
    run: Path, folder: Path, options: list[CTranslate2Options], on_notice: OnBenchmarkNotice
) -> Iterator[tuple[CTranslate2Options, Path]]:
    """Write the model for CTranslate2, once for each precision; one that it cannot compute is left out."""
    for how in options:
        place = folder / how.quantization
        try:
            yield how, place if place.exists() else export_run(run, place, quantization=how.quantization)
        except UserError as error:
            on_notice(f"{how} is left out: {error}")


def _decoding_result(
    model: str, engine: str, beam: int, batch_size: str, bulk: list[TimedOutputs], single: list[TimedOutputs],
    sentences: BenchmarkSentences, translator: Translator,
) -> DecodingResult:  # fmt: skip
    """Make figures of what a contender answered."""
    outputs = bulk[0].outputs
    lengths = [len(output) for output in outputs]
    how, vocabulary = cast(TransformerConfig, translator.recipe.model), len(translator.target_tokenizer)
    work = [
        decoding_flops(how, vocabulary, len(source), length, beam)
        for source, length in zip(sentences.sources, lengths, strict=True)
    ]
    texts = [translator.target_tokenizer.decode(output) for output in outputs] if sentences.references else []
    return DecodingResult(
        model, engine, beam, batch_size,
        speed=SampleStats.from_values([len(answer.outputs) / answer.seconds[0] for answer in bulk]),
        token_speed=SampleStats.from_values([sum(map(len, answer.outputs)) / answer.seconds[0] for answer in bulk]),
        latency=SampleStats.from_values([1000 * percentile(answer.seconds, 50) for answer in single]),
        latency_95=SampleStats.from_values([1000 * percentile(answer.seconds, 95) for answer in single]),
        output_lengths=(min(lengths), max(lengths)),
        bleu=corpus_bleu(texts, sentences.references) if sentences.references else None,
        flops=sum(work) / len(work),
    )  # fmt: skip


def _report_unexpected_lengths(
    results: list[DecodingResult], sentences: BenchmarkSentences, on_notice: OnBenchmarkNotice
) -> None:
    """Say whose outputs have not the length that was forced: then its speed is not comparable."""
    wanted = (OUTPUT_PIECES, OUTPUT_PIECES)
    for each in results if sentences.fixed_length else ():
        if each.output_lengths != wanted:
            shortest, longest = each.output_lengths
            on_notice(
                f"{each.engine}, beam {each.beam}: outputs have {shortest}–{longest} pieces, not {OUTPUT_PIECES}."
            )
