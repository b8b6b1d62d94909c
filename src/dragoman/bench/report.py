"""What came out: tables for people, JSON for programs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.bench.config import BenchmarkConfig
from dragoman.bench.decoding import DecodingResult
from dragoman.bench.machine import Machine
from dragoman.bench.stats import SampleStats, paired_ratio
from dragoman.bench.training import TORCH_ENGINES, TrainingResult

_REFERENCE_ENGINE = "CTranslate2"


@dataclass(frozen=True)
class BenchmarkTable:
    """Cells as they are shown; the first columns name something, the others are numbers."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    name_columns: int  # columns that are no numbers


@dataclass(frozen=True)
class BenchmarkReport:
    """All figures of one benchmark, and what must be known to read them."""

    machine: Machine
    config: BenchmarkConfig
    notes: list[str]
    peaks: dict[str, SampleStats]  # billions of operations a second, by the kind of numbers multiplied
    training: list[TrainingResult]
    decoding: list[DecodingResult]

    def peak_fraction(self, operations_per_second: float) -> float:
        """Return the share of the machine's float32 peak that a speed amounts to."""
        return operations_per_second / (self.peaks["float32"].median * 1e9)

    def ratio_to_torch(self, result: TrainingResult, precision: str) -> SampleStats | None:
        """Return how many times as fast as the plain loop in some precision a training is."""
        theirs = [each for each in self.training if (each.size, each.engine) == (result.size, TORCH_ENGINES[precision])]
        return paired_ratio(result.speed, theirs[0].speed) if theirs else None

    def best_reference(self, result: DecodingResult, speed: Callable[[DecodingResult], float]) -> DecodingResult | None:
        """Return the CTranslate2 that is fastest with the same model at the same beam."""
        same = [each for each in self.decoding if (each.model, each.beam) == (result.model, result.beam)]
        return max((each for each in same if each.engine.startswith(_REFERENCE_ENGINE)), key=speed, default=None)

    def bulk_ratio(self, result: DecodingResult) -> SampleStats | None:
        """Return how many times as many sentences a second it decodes as the best CTranslate2."""
        rival = self.best_reference(result, lambda each: each.speed.median)
        return paired_ratio(result.speed, rival.speed) if rival else None

    def latency_ratio(self, result: DecodingResult) -> SampleStats | None:
        """Return how many times as soon it answers as the best CTranslate2, one sentence at a time."""
        rival = self.best_reference(result, lambda each: -each.latency.median)
        return paired_ratio(rival.latency, result.latency) if rival else None

    def tables(self) -> list[BenchmarkTable]:
        """Return everything that was measured as tables."""
        tables = [_peak_table(self)]
        if self.training:
            tables.append(_training_table(self))
        if self.decoding:
            tables += [_bulk_decoding_table(self), _latency_table(self)]
        return tables

    def conditions(self) -> list[str]:
        """Return the sentences without which the numbers mean nothing."""
        rounds = f"{self.config.repeats} rounds" if self.config.repeats > 1 else "one round"
        return [
            f"Machine: {self.machine}.",
            f"Contenders took turns, {rounds} after a warm-up, each in a process of its own. A number is the median; "
            "the lowest and the highest are in brackets. A ratio (×) is the median of the ratios of each round.",
            *self.notes,
        ]

    def to_markdown(self) -> str:
        """Return all as a piece of Markdown to paste."""
        parts = ["\n".join(f"- {fact}" for fact in self.conditions())]
        parts += [f"**{table.title}**\n\n{_markdown_table(table)}" for table in self.tables()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return all as plain dictionaries, lists, strings and numbers."""
        plan = {name: str(value) if name == "run" and value else value for name, value in asdict(self.config).items()}
        return {
            "machine": asdict(self.machine),
            "plan": plan,
            "notes": self.notes,
            "peak_gigaflops": {kind: speed.to_json() for kind, speed in self.peaks.items()},
            "training": [self.training_json(each) for each in self.training],
            "decoding": [self.decoding_json(each) for each in self.decoding],
        }

    def training_json(self, result: TrainingResult) -> dict[str, Any]:
        """Return one training with what it is compared to."""
        ratios = {TORCH_ENGINES[precision]: self.ratio_to_torch(result, precision) for precision in TORCH_ENGINES}
        return _result_fields(result) | {
            "fraction_of_float32_peak": self.peak_fraction(result.speed.median * result.flops),
            "ratio_to": {name: found.to_json() for name, found in ratios.items() if found},
        }

    def decoding_json(self, result: DecodingResult) -> dict[str, Any]:
        """Return one decoding with what it is compared to."""
        ratios = {"bulk": self.bulk_ratio(result), "one_at_a_time": self.latency_ratio(result)}
        return _result_fields(result) | {
            "fraction_of_float32_peak": self.peak_fraction(result.speed.median * result.flops),
            "ratio_to_best_ctranslate2": {name: found.to_json() for name, found in ratios.items() if found},
        }


def _result_fields(result: TrainingResult | DecodingResult) -> dict[str, Any]:
    """Return a result's own fields."""
    fields = vars(result).items()
    return {name: value.to_json() if isinstance(value, SampleStats) else value for name, value in fields}


def _peak_table(report: BenchmarkReport) -> BenchmarkTable:
    """Show what the machine can do at all."""
    side = report.config.workload.matrix_size
    rows = [(kind, speed.format(_format_integer)) for kind, speed in report.peaks.items()]
    return BenchmarkTable(
        f"This machine's matrix products, {side}³", ("numbers", "billion operations/s"), rows, name_columns=1
    )


def _training_table(report: BenchmarkReport) -> BenchmarkTable:
    """Show who trains how fast."""
    headings = (
        "size", "engine", "target tokens/s", "× plain float32", "× plain bfloat16", "of float32 peak", "memory",
    )  # fmt: skip
    rows = [
        (
            f"{each.size} ({each.parameters / 1e6:.1f} M)",
            each.engine,
            each.speed.format(_format_integer),
            _format_ratio(report.ratio_to_torch(each, "float32")),
            _format_ratio(report.ratio_to_torch(each, "bfloat16")),
            f"{report.peak_fraction(each.speed.median * each.flops):.0%}",
            f"{each.memory / 1e6:,.0f} MB",
        )
        for each in report.training
    ]
    return BenchmarkTable("Training", headings, rows, name_columns=2)


def _bulk_decoding_table(report: BenchmarkReport) -> BenchmarkTable:
    """Show who decodes how fast when there is much to do."""
    headings = (
        "model",
        "beam",
        "engine",
        "batches",
        "sentences/s",
        "output tokens/s",
        f"× best {_REFERENCE_ENGINE}",
        "of float32 peak",
        "pieces",
        "BLEU",
    )
    rows = [
        (
            each.model,
            str(each.beam),
            each.engine,
            each.batch_size,
            each.speed.format(_format_significant),
            each.token_speed.format(_format_integer),
            _format_ratio(report.bulk_ratio(each)),
            f"{report.peak_fraction(each.speed.median * each.flops):.0%}",
            "–".join(map(str, sorted(set(each.output_lengths)))),
            "" if each.bleu is None else f"{each.bleu:.1f}",
        )
        for each in _sort_by_model_and_beam(report.decoding)
    ]
    return BenchmarkTable("Decoding in bulk", headings, rows, name_columns=4)


def _latency_table(report: BenchmarkReport) -> BenchmarkTable:
    """Show how long one waits for one sentence."""
    headings = ("model", "beam", "engine", "median, ms", "95th percentile, ms", f"× best {_REFERENCE_ENGINE}")
    rows = [
        (
            each.model,
            str(each.beam),
            each.engine,
            each.latency.format(_format_significant),
            each.latency_95.format(_format_significant),
            _format_ratio(report.latency_ratio(each)),
        )
        for each in _sort_by_model_and_beam(report.decoding)
    ]
    return BenchmarkTable("Decoding, one sentence at a time", headings, rows, name_columns=3)


def _sort_by_model_and_beam(results: Sequence[DecodingResult]) -> list[DecodingResult]:
    """Put those together that are to be compared."""
    return sorted(results, key=lambda each: (each.model, each.beam))


def _markdown_table(table: BenchmarkTable) -> str:
    """Write a table in Markdown."""
    rule = ["---"] * table.name_columns + ["---:"] * (len(table.headings) - table.name_columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.headings, rule, *table.rows))


def _format_integer(number: float) -> str:
    """Write a number without decimals."""
    return f"{number:,.0f}"


def _format_significant(number: float) -> str:
    """Write a number with two digits at least."""
    return f"{number:.1f}" if number < 100 else _format_integer(number)


def _format_ratio(measure: SampleStats | None) -> str:
    """Write a ratio; nothing where there is none."""
    return "" if measure is None else measure.format(lambda number: f"{number:.2f}")
