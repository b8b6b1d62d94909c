"""Run a benchmark: load the text, start the engines, measure in rounds, and report."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dragoman.bench.config import BenchmarkConfig, recipe_for_size
from dragoman.bench.data import (
    BenchmarkCorpus,
    learn_tokenizers,
    load_decoding_text,
    load_training_text,
    tokenize_text,
    write_random_run,
)
from dragoman.bench.decoding import (
    OUTPUT_TOKENS,
    SOURCE_TOKENS,
    DecodingResult,
    fixed_length_sentences,
    measure_decoding,
    tokenize_sentences,
)
from dragoman.bench.flops import check_countable
from dragoman.bench.machine import MatmulPeak, describe_machine
from dragoman.bench.report import BenchmarkReport
from dragoman.bench.stats import SampleStats
from dragoman.bench.training import TrainingResult, measure_training
from dragoman.bench.workers import EngineProcess, engine_spec, start_engines
from dragoman.errors import format_count
from dragoman.model_files import read_tokenizers
from dragoman.processes import available_cores
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.events import Notice, ProgressUpdate
from dragoman.tasks.translate import Translator
from dragoman.training.events import StopRequest

_PEAK_ENGINE = "dragoman matrix product"

_OnBenchmarkEvent = Callable[[ProgressUpdate | Notice], None]


def run_benchmark(
    config: BenchmarkConfig, on_event: _OnBenchmarkEvent, stop: StopRequest | None = None
) -> BenchmarkReport:
    """Measure what `config` names and return the report; a stop request ends it after the current round."""
    config.check()
    if config.run:
        Translator.load(config.run, device="cpu")  # raises an error for an unusable run before anything starts
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as folder:
        peak = engine_spec(MatmulPeak, config.threads, config.workload.matrix_size, config.workload.peak_seconds)
        benchmark = _Benchmark(config, on_event, Path(folder), stop or StopRequest())
        benchmark.load_text()
        with start_engines({_PEAK_ENGINE: peak}, benchmark.add_note, config.workload.pause_seconds) as engines:
            return benchmark.measure(engines[_PEAK_ENGINE])


class _Benchmark:
    """A benchmark in progress."""

    def __init__(self, config: BenchmarkConfig, on_event: _OnBenchmarkEvent, folder: Path, stop: StopRequest) -> None:
        self.config, self.on_event, self.folder, self.stop = config, on_event, folder, stop
        self.run = Run(config.run) if config.run else None
        self.notes: list[str] = []
        self.peaks: dict[str, list[float]] = {}

    def add_note(self, note: str) -> None:
        """Send a notice and keep it for the report."""
        self.notes.append(note)
        self.on_event(Notice(note))

    def load_text(self) -> None:
        """Read the texts to train on and to translate, so that errors in them come before the first round."""
        self.on_event(ProgressUpdate("Reading the text", 0))
        config = self.config
        self.recipe = self.run.read_recipe() if self.run else recipe_for_size("tiny", config)
        check_countable(self.recipe.model, self.run)
        text = load_training_text(config) if config.only != "decoding" else None
        self.text_to_decode = load_decoding_text(config) if config.only != "training" else None
        words = text or self.text_to_decode
        assert words, "at least one part is measured"
        joint = self.recipe.tokenizer.joint
        self.tokenizers = read_tokenizers(self.run, joint) if self.run else learn_tokenizers(words, self.recipe)
        self.corpus = tokenize_text(self.folder / "text", text, self.recipe, self.tokenizers) if text else None

    def measure(self, peak: EngineProcess) -> BenchmarkReport:
        """Measure training, then decoding."""
        training = [
            result for size, recipe in self.training_recipes() for result in self.benchmark_training(size, recipe, peak)
        ]
        decoding = [] if self.config.only == "training" or self.stop.requested else self.benchmark_decoding(peak)
        speeds = {kind: SampleStats.from_values(values) for kind, values in self.peaks.items()}
        machine = describe_machine(self.config.threads, available_cores())
        return BenchmarkReport(machine, self.config, self.notes, speeds, training, decoding)

    def count_rounds(self, title: str, peak: EngineProcess) -> Iterator[int]:
        """Yield the rounds; each begins with matrix products. At least one whole round is measured."""
        for index in range(self.config.repeats):
            self.stop.deferred |= index > 0
            if self.stop.requested and index:
                self.add_note(f"{title}: stopped after round {index} of {self.config.repeats}.")
                return
            self.on_event(ProgressUpdate(f"{title}: round", index + 1, self.config.repeats))
            for kind, speed in peak.run_turn().items():
                self.peaks.setdefault(kind, []).append(speed)
            yield index
        self.stop.deferred = True

    def training_recipes(self) -> Iterator[tuple[str, Recipe]]:
        """Yield the recipes to train: the sizes given, or the model of the run."""
        for size in self.config.training_sizes:
            if self.stop.requested:
                return
            yield size, recipe_for_size(size, self.config, joint=self.recipe.tokenizer.joint)
        if self.run and not self.config.sizes and self.config.only != "decoding":
            yield self.run.folder.resolve().name, self.recipe

    def benchmark_training(self, size: str, recipe: Recipe, peak: EngineProcess) -> list[TrainingResult]:
        """Measure the training of one model."""
        assert self.corpus, "load_text reads a text to train on"
        self.add_note(f"Training, {size}: {_describe_corpus(self.corpus, recipe.training.batch_tokens)}")
        self.on_event(ProgressUpdate(f"Training, {size}: starting", 0))
        rounds = self.count_rounds(f"Training, {size}", peak)
        return measure_training(size, recipe, self.corpus, self.config, rounds, self.add_note)

    def benchmark_decoding(self, peak: EngineProcess) -> list[DecodingResult]:
        """Measure decoding with the run, or with random weights of every size given."""
        if self.run:
            name = self.run.folder.resolve().name
            return self.benchmark_model_decoding(name, self.run, fixed_length=False, peak=peak)
        results = []
        for size in self.config.decoding_sizes:
            if self.stop.requested:
                break
            # The length limit of an output, which random weights always reach.
            lengths = {"decoding": {"extra_length": OUTPUT_TOKENS - SOURCE_TOKENS}}
            recipe = recipe_for_size(size, self.config, overrides=lengths)
            run = write_random_run(self.folder / size, recipe, self.tokenizers)
            results += self.benchmark_model_decoding(size, run, fixed_length=True, peak=peak)
        return results

    def benchmark_model_decoding(
        self, name: str, run: Run, *, fixed_length: bool, peak: EngineProcess
    ) -> list[DecodingResult]:
        """Measure decoding with one model."""
        self.on_event(ProgressUpdate(f"Decoding, {name}: starting", 0))
        assert self.text_to_decode, "load_text reads a text to decode"
        translator = Translator.load(run, device="cpu")
        if fixed_length:
            sentences = fixed_length_sentences(self.text_to_decode, translator, self.config)
            weights = f"random weights; outputs of {OUTPUT_TOKENS} tokens"
        else:
            sentences = tokenize_sentences(self.text_to_decode, translator, self.config, self.add_note)
            weights = "trained weights"
        self.add_note(
            f"Decoding, {name}: {weights}; {format_count(len(sentences.sources), 'sentence')} of {sentences.origin}."
        )
        rounds = self.count_rounds(f"Decoding, {name}", peak)
        return measure_decoding(name, run.folder, sentences, self.config, rounds, self.add_note)


def _describe_corpus(corpus: BenchmarkCorpus, batch_tokens: int) -> str:
    """Describe the corpus with everything that the speed depends on."""
    pairs, (source, target) = corpus.open_pairs(), map(len, corpus.read_tokenizers())
    pieces = f"{source:,}" if corpus.joint else f"{source:,} and {target:,}"
    return (
        f"{len(pairs):,} pairs of {corpus.origin}; vocabulary {pieces} tokens; on average "
        f"{pairs.source_lengths.mean():.1f} source and {pairs.target_lengths.mean():.1f} target tokens; batches of "
        f"{batch_tokens:,} tokens, padding included."
    )
