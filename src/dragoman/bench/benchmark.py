"""One benchmark from beginning to end: the text, the contenders, the rounds, the report."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dragoman.bench.decoding import (
    OUTPUT_PIECES,
    SOURCE_PIECES,
    DecodingResult,
    forced_sentences,
    measure_decoding,
    sentences_of,
)
from dragoman.bench.flops import check_countable
from dragoman.bench.machine import Peak, this_machine
from dragoman.bench.material import Material, Text, decoding_text, learned, material, random_run, training_text
from dragoman.bench.measure import Measure
from dragoman.bench.plan import Plan, recipe_of_size
from dragoman.bench.report import Report
from dragoman.bench.training import TrainingResult, measure_training
from dragoman.bench.workers import Worker, started
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.events import Working
from dragoman.tasks.train import cores
from dragoman.tasks.translator import load
from dragoman.text.tokenizer import Tokenizer
from dragoman.training.session import Notice, Stop

PEAK = "dragoman's matrix products"

Listen = Callable[[Working | Notice], None]


def bench(plan: Plan, listen: Listen, stop: Stop | None = None) -> Report:
    """Measure everything that the plan asks for, or what there is by the time of a `stop`; `listen` hears of it."""
    plan.check()
    if plan.run:
        load(plan.run, device="cpu")  # one that cannot be used is refused before anything starts
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as folder:
        how = plan.threads, plan.effort.side, plan.effort.peak_seconds
        benchmark = Benchmark(plan, listen, Path(folder), stop or Stop())
        benchmark.find_text()
        with started({PEAK: (Peak, how)}, benchmark.say, plan.effort.pause_seconds) as workers:
            return benchmark.report(workers[PEAK])


class Benchmark:
    """A benchmark while it goes on."""

    def __init__(self, plan: Plan, listen: Listen, folder: Path, stop: Stop) -> None:
        self.plan, self.listen, self.folder, self.stop = plan, listen, folder, stop
        self.run = Run(plan.run) if plan.run else None
        self.notes: list[str] = []
        self.peaks: dict[str, list[float]] = {}

    def say(self, note: str) -> None:
        """Tell a person something that belongs into the report too."""
        self.notes.append(note)
        self.listen(Notice(note))

    def find_text(self) -> None:
        """Read what will be trained on and translated; whatever is wrong with it is said before the first turn."""
        self.listen(Working("Reading the text", 0))
        plan = self.plan
        self.recipe = self.run.read_recipe() if self.run else recipe_of_size("tiny", plan)
        check_countable(self.recipe.model, self.run)
        text = training_text(plan) if plan.only != "decoding" else None
        self.translated = decoding_text(plan) if plan.only != "training" else None
        self.tokenizers = self.find_tokenizers(text or self.translated)
        self.material = material(self.folder / "text", text, self.recipe, self.tokenizers) if text else None

    def find_tokenizers(self, text: Text | None) -> tuple[Tokenizer, Tokenizer]:
        """Read the run's tokenizers, or learn some."""
        assert text, "at least one part is measured"
        return self.run.read_tokenizers(self.recipe.tokenizer.joint) if self.run else learned(text, self.recipe)

    def report(self, peak: Worker) -> Report:
        """Measure part after part."""
        training = [result for size, recipe in self.recipes() for result in self.training(size, recipe, peak)]
        decoding = [] if self.plan.only == "training" or self.stop.requested else self.decoding(peak)
        speeds = {kind: Measure.of(values) for kind, values in self.peaks.items()}
        machine = this_machine(self.plan.threads, cores())
        return Report(machine, self.plan, self.notes, speeds, training, decoding)

    def rounds(self, what: str, peak: Worker) -> Iterator[int]:
        """Count the rounds; in each of them the machine shows its own speed first. One whole round makes a report."""
        for number in range(self.plan.repeats):
            self.stop.granted_later |= number > 0
            if self.stop.requested and number:
                self.say(f"{what}: stopped after round {number} of {self.plan.repeats}.")
                return
            self.listen(Working(f"{what}: round", number + 1, self.plan.repeats))
            for kind, speed in peak.ask().items():
                self.peaks.setdefault(kind, []).append(speed)
            yield number
        self.stop.granted_later = True

    def recipes(self) -> Iterator[tuple[str, Recipe]]:
        """Yield what is to be trained: the sizes that were asked for, or the run's own model."""
        for size in self.plan.trained:
            if self.stop.requested:
                return
            yield size, recipe_of_size(size, self.plan, joint=self.recipe.tokenizer.joint)
        if self.run and not self.plan.sizes and self.plan.only != "decoding":
            yield self.run.folder.resolve().name, self.recipe

    def training(self, size: str, recipe: Recipe, peak: Worker) -> list[TrainingResult]:
        """Measure the training of one model."""
        assert self.material, "there is a text wherever there is a training"
        self.say(f"Training, {size}: {described(self.material, recipe.training.batch_tokens)}")
        self.listen(Working(f"Training, {size}: starting", 0))
        rounds = self.rounds(f"Training, {size}", peak)
        return measure_training(size, recipe, self.material, self.plan, rounds, self.say)

    def decoding(self, peak: Worker) -> list[DecodingResult]:
        """Measure decoding with the run, or with random weights of every size that was asked for."""
        if self.run:
            name = self.run.folder.resolve().name
            return self.decoded(name, self.run, forced=False, peak=peak)
        results = []
        for size in self.plan.decoded:
            if self.stop.requested:
                break
            # The longest output is the source and this many pieces more, which random weights always reach.
            lengths = {"decoding": {"extra_length": OUTPUT_PIECES - SOURCE_PIECES}}
            recipe = recipe_of_size(size, self.plan, more=lengths)
            run = random_run(self.folder / size, recipe, self.tokenizers)
            results += self.decoded(size, run, forced=True, peak=peak)
        return results

    def decoded(self, name: str, run: Run, *, forced: bool, peak: Worker) -> list[DecodingResult]:
        """Measure decoding with one model."""
        self.listen(Working(f"Decoding, {name}: starting", 0))
        assert self.translated, "there is a text wherever there is decoding"
        translator = load(run, device="cpu")
        if forced:
            sentences = forced_sentences(self.translated, translator, self.plan)
            weights = f"random weights; outputs of {OUTPUT_PIECES} pieces"
        else:
            sentences = sentences_of(self.translated, translator, self.plan, self.say)
            weights = "trained weights"
        self.say(f"Decoding, {name}: {weights}; {len(sentences.sources):,} sentences of {sentences.origin}.")
        rounds = self.rounds(f"Decoding, {name}", peak)
        return measure_decoding(name, run.folder, sentences, self.plan, rounds, self.say)


def described(text: Material, batch_tokens: int) -> str:
    """Say what is trained on, with what a speed depends on."""
    pairs, (source, target) = text.pairs(), map(len, text.tokenizers())
    pieces = f"{source:,}" if text.joint else f"{source:,} and {target:,}"
    return (
        f"{len(pairs):,} pairs of {text.origin}; vocabulary {pieces} pieces; on average "
        f"{pairs.source_lengths.mean():.1f} source and {pairs.target_lengths.mean():.1f} target tokens; batches of "
        f"{batch_tokens:,} tokens, padding included."
    )
