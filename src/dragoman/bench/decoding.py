"""Decoding, side by side: sentences and tokens a second in bulk, and how long one sentence takes by itself."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.bench.ctranslate import CTranslate2, Options
from dragoman.bench.flops import decoding_flops
from dragoman.bench.huggingface import HuggingFace
from dragoman.bench.machine import installed
from dragoman.bench.material import Text
from dragoman.bench.measure import Measure, percentile
from dragoman.bench.ours import OurDecoder
from dragoman.bench.plan import BEAMS, Plan
from dragoman.bench.stopwatch import Answer, TimedDecoder, Tokens, Way
from dragoman.bench.workers import OURS, Make, Say, started
from dragoman.errors import UserError
from dragoman.evaluation.scores import bleu
from dragoman.tasks.export import export, pieces
from dragoman.tasks.translator import Translator, load
from dragoman.tokens import END

QUANTIZATIONS = ("float32", "int8")
SOURCE_PIECES, OUTPUT_PIECES = 15, 25  # of every sentence where the weights are random
WAYS: tuple[Way, Way] = ("bulk", "one at a time")


@dataclass(frozen=True)
class Sentences:
    """What everybody translates."""

    origin: str
    sources: list[Tokens]
    references: list[str] | None
    forced: bool = False  # sources and outputs of fixed lengths, because the weights are random


@dataclass(frozen=True)
class DecodingResult:
    """How fast one contender decoded with one model at one beam."""

    model: str
    contender: str
    beam: int
    batches: str  # of what size
    speed: Measure  # sentences a second, in bulk
    token_speed: Measure  # output tokens a second, in bulk
    latency: Measure  # milliseconds for one sentence by itself: the median of each turn
    latency_95: Measure  # and its 95th percentile
    lengths: tuple[int, int]  # of the shortest and the longest output
    bleu: float | None
    flops: float  # for one sentence


def sentences_of(text: Text, translator: Translator, plan: Plan, say: Say) -> Sentences:
    """Cut the first sentences into pieces; those that the model cannot read at once are left out."""
    references = text.references or [""] * len(text.sources)
    tokens = [
        (translator.source_tokens(source), reference)
        for source, reference in zip(text.sources, references, strict=True)
        if source.strip()
    ][: plan.sentences]
    readable = [row for row in tokens if len(row[0]) <= translator.longest]
    if len(readable) < len(tokens):
        left_out = len(tokens) - len(readable)
        say(f"{text.origin}: {left_out:,} sentences of more than {translator.longest} pieces are left out.")
    if not readable:
        raise nothing_to_translate(text)
    sources, kept = zip(*readable, strict=True)
    return Sentences(text.origin, list(sources), list(kept) if text.references else None)


def forced_sentences(text: Text, translator: Translator, plan: Plan) -> Sentences:
    """Cut or repeat each source to the same length; there is nothing to compare the outputs with."""
    drawn = (translator.source_tokens(source)[:-1] for source in text.sources if source.strip())
    tokens = [tokens for tokens in drawn if tokens]
    if not tokens:
        raise nothing_to_translate(text)
    again = [tokens[number % len(tokens)] for number in range(plan.sentences)]
    sources = [[*(row * SOURCE_PIECES)[:SOURCE_PIECES], END] for row in again]
    return Sentences(f"{text.origin}, {SOURCE_PIECES} pieces each", sources, None, forced=True)


def nothing_to_translate(text: Text) -> UserError:
    """Say that a text has no sentence."""
    return UserError(f"{text.origin}: there is no sentence that can be translated; give another --source.")


def measure_decoding(
    name: str, run: Path, sentences: Sentences, plan: Plan, rounds: Iterable[int], say: Say
) -> list[DecodingResult]:
    """Let the contenders decode in turns; in every round each one does everything."""
    translator = load(run, device="cpu")
    with (
        contenders(run, translator, sentences, plan, say) as makes,
        started(makes, say, plan.effort.pause_seconds) as workers,
    ):
        batches = {
            (worker.name, beam): worker.ask("warm-up", beam).batches for beam in BEAMS for worker in workers.values()
        }
        answers: dict[tuple[str, int, Way], list[Answer]] = {}
        for _ in rounds:
            for beam in BEAMS:
                for way in WAYS:
                    for worker in workers.values():
                        answers.setdefault((worker.name, beam, way), []).append(worker.ask(way, beam))
    results = []
    for (contender, beam), size in batches.items():
        bulk, single = (answers[contender, beam, way] for way in WAYS)
        results.append(result(name, contender, beam, size, bulk, single, sentences, translator))
    tell_lengths(results, sentences, say)
    return results


@contextmanager
def contenders(
    run: Path, translator: Translator, sentences: Sentences, plan: Plan, say: Say
) -> Iterator[dict[str, Make]]:
    """Return who takes part; the exports that some of them read are there as long as they are."""

    def made(kind: Any, *arguments: Any) -> Make:
        return TimedDecoder, (kind, arguments, sentences.sources, plan.singles)

    found = {f"{OURS} {precision}": made(OurDecoder, run, plan.threads, precision) for precision in QUANTIZATIONS}
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as folder:
        if is_there("CTranslate2", "ctranslate2", say):
            vocabularies = pieces(translator.source_tokenizer), pieces(translator.target_tokenizer)
            for how, place in exports(run, Path(folder), ctranslate2_options(translator, sentences, plan), say):
                found[str(how)] = made(CTranslate2, place, *vocabularies, how)
        if sentences.forced and plan.effort.hugging_face and is_there("Hugging Face Transformers", "transformers", say):
            vocabulary = len(translator.target_tokenizer)
            found["Hugging Face generate"] = made(
                HuggingFace, translator.recipe.model, vocabulary, OUTPUT_PIECES, plan.threads
            )
        yield found


def is_there(name: str, package: str, say: Say) -> bool:
    """Say whether a rival is installed."""
    there = installed(package) is not None
    if not there:
        say(f'{name} is not installed, so it is left out: pip install "dragoman[bench]".')
    return there


def ctranslate2_options(translator: Translator, sentences: Sentences, plan: Plan) -> list[Options]:
    """Return the ways to run CTranslate2: in either precision, one worker with all threads, and a worker a thread."""
    own = translator.recipe.decoding
    longest = max(map(len, sentences.sources)) - 1 + own.extra_length
    lengths = (OUTPUT_PIECES, OUTPUT_PIECES) if sentences.forced else (longest, 1)
    shares = sorted({(1, plan.threads), (plan.threads, 1)})
    return [
        Options(quantization, workers, threads, *lengths, own.length_penalty)
        for quantization in QUANTIZATIONS
        for workers, threads in shares
    ]


def exports(run: Path, folder: Path, ways: list[Options], say: Say) -> Iterator[tuple[Options, Path]]:
    """Write the model for CTranslate2, once for each precision; one that it cannot compute is left out."""
    for how in ways:
        place = folder / how.quantization
        try:
            yield how, place if place.exists() else export(run, place, quantization=how.quantization)
        except UserError as error:
            say(f"{how} is left out: {error}")


def result(
    model: str, contender: str, beam: int, batches: str, bulk: list[Answer], single: list[Answer],
    sentences: Sentences, translator: Translator,
) -> DecodingResult:  # fmt: skip
    """Make figures of what a contender answered."""
    outputs = bulk[0].outputs
    lengths = [len(output) for output in outputs]
    how, vocabulary = translator.recipe.model, len(translator.target_tokenizer)
    work = [
        decoding_flops(how, vocabulary, len(source), length, beam)
        for source, length in zip(sentences.sources, lengths, strict=True)
    ]
    texts = [translator.target_tokenizer.decode(output) for output in outputs] if sentences.references else []
    return DecodingResult(
        model, contender, beam, batches,
        speed=Measure.of([len(answer.outputs) / answer.seconds[0] for answer in bulk]),
        token_speed=Measure.of([sum(map(len, answer.outputs)) / answer.seconds[0] for answer in bulk]),
        latency=Measure.of([1000 * percentile(answer.seconds, 50) for answer in single]),
        latency_95=Measure.of([1000 * percentile(answer.seconds, 95) for answer in single]),
        lengths=(min(lengths), max(lengths)),
        bleu=bleu(texts, sentences.references) if sentences.references else None,
        flops=sum(work) / len(work),
    )  # fmt: skip


def tell_lengths(results: list[DecodingResult], sentences: Sentences, say: Say) -> None:
    """Say whose outputs have not the length that was forced: then its speed is not comparable."""
    wanted = (OUTPUT_PIECES, OUTPUT_PIECES)
    for each in results if sentences.forced else ():
        if each.lengths != wanted:
            shortest, longest = each.lengths
            say(f"{each.contender}, beam {each.beam}: outputs have {shortest}–{longest} pieces, not {OUTPUT_PIECES}.")
