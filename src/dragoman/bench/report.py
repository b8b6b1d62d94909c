"""The report of a benchmark as tables, Markdown and JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.bench.config import BenchmarkConfig
from dragoman.bench.decoding import DecodingResult
from dragoman.bench.machine import Machine
from dragoman.bench.stats import SampleStats, paired_ratio
from dragoman.bench.training import TORCH_ENGINES, TrainingResult
from dragoman.report import ReportTable, markdown_table

_REFERENCE_ENGINE = "CTranslate2"


@dataclass(frozen=True)
class BenchmarkReport:
    """All results of a benchmark and the conditions under which they were measured."""

    machine: Machine
    config: BenchmarkConfig
    notes: list[str]
    peaks: dict[str, SampleStats]  # billions of operations per second, by data type
    training: list[TrainingResult]
    decoding: list[DecodingResult]

    def peak_fraction(self, operations_per_second: float) -> float:
        """Return a speed as a fraction of the float32 peak of the machine."""
        return operations_per_second / (self.peaks["float32"].median * 1e9)

    def ratio_to_torch(self, result: TrainingResult, precision: str) -> SampleStats | None:
        """Return the speed of a training relative to the PyTorch loop in some precision."""
        baseline = [
            training
            for training in self.training
            if (training.size, training.engine) == (result.size, TORCH_ENGINES[precision])
        ]
        return paired_ratio(result.speed, baseline[0].speed) if baseline else None

    def best_reference(self, result: DecodingResult, speed: Callable[[DecodingResult], float]) -> DecodingResult | None:
        """Return the fastest CTranslate2 configuration with the same model and beam."""
        same = [
            decoding for decoding in self.decoding if (decoding.model, decoding.beam) == (result.model, result.beam)
        ]
        return max(
            (decoding for decoding in same if decoding.engine.startswith(_REFERENCE_ENGINE)), key=speed, default=None
        )

    def bulk_ratio(self, result: DecodingResult) -> SampleStats | None:
        """Return the bulk speed relative to the best CTranslate2 configuration."""
        reference = self.best_reference(result, lambda one: one.speed.median)
        return paired_ratio(result.speed, reference.speed) if reference else None

    def latency_ratio(self, result: DecodingResult) -> SampleStats | None:
        """Return the latency of the best CTranslate2 configuration relative to this one."""
        reference = self.best_reference(result, lambda one: -one.latency.median)
        return paired_ratio(reference.latency, result.latency) if reference else None

    def tables(self) -> list[ReportTable]:
        """Return all results as tables."""
        tables = [_peak_table(self)]
        if self.training:
            tables.append(_training_table(self))
        if self.decoding:
            tables += [_bulk_decoding_table(self), _latency_table(self)]
        return tables

    def conditions(self) -> list[str]:
        """Return the conditions of the measurement as sentences."""
        rounds = f"{self.config.repeats} rounds" if self.config.repeats > 1 else "one round"
        return [
            f"Machine: {self.machine}.",
            f"Each engine ran in its own process. After a warm-up, the engines were measured alternately in {rounds}. "
            "Values are medians, with the minimum and maximum in brackets; ratios (×) are medians of the ratios of all "
            "rounds.",
            *self.notes,
        ]

    def to_markdown(self) -> str:
        """Return the report as Markdown."""
        parts = ["\n".join(f"- {fact}" for fact in self.conditions())]
        parts += [f"**{table.title}**\n\n{markdown_table(table)}" for table in self.tables()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain dictionaries, lists, strings and numbers."""
        config = {name: str(value) if name == "run" and value else value for name, value in asdict(self.config).items()}
        return {
            "machine": asdict(self.machine),
            "config": config,
            "notes": self.notes,
            "peak_gigaflops": {kind: speed.to_json() for kind, speed in self.peaks.items()},
            "training": [self.training_json(result) for result in self.training],
            "decoding": [self.decoding_json(result) for result in self.decoding],
        }

    def training_json(self, result: TrainingResult) -> dict[str, Any]:
        """Return one training result with its ratios."""
        ratios = {TORCH_ENGINES[precision]: self.ratio_to_torch(result, precision) for precision in TORCH_ENGINES}
        return _result_fields(result) | {
            "fraction_of_float32_peak": self.peak_fraction(result.speed.median * result.flops),
            "ratio_to": {name: ratio.to_json() for name, ratio in ratios.items() if ratio},
        }

    def decoding_json(self, result: DecodingResult) -> dict[str, Any]:
        """Return one decoding result with its ratios."""
        ratios = {"bulk": self.bulk_ratio(result), "one_at_a_time": self.latency_ratio(result)}
        return _result_fields(result) | {
            "fraction_of_float32_peak": self.peak_fraction(result.speed.median * result.flops),
            "ratio_to_best_ctranslate2": {name: ratio.to_json() for name, ratio in ratios.items() if ratio},
        }


def _result_fields(result: TrainingResult | DecodingResult) -> dict[str, Any]:
    fields = vars(result).items()
    return {name: value.to_json() if isinstance(value, SampleStats) else value for name, value in fields}


def _peak_table(report: BenchmarkReport) -> ReportTable:
    side = report.config.workload.matrix_size
    rows = [(kind, f"{speed:,.0f}") for kind, speed in report.peaks.items()]
    return ReportTable(f"Matrix multiplication speed, {side}³", ("data type", "billion operations/s"), rows)


def _training_table(report: BenchmarkReport) -> ReportTable:
    headings = (
        "size", "engine", "target tokens/s", "× PyTorch float32", "× PyTorch bfloat16", "of float32 peak", "memory",
    )  # fmt: skip
    rows = [
        (
            f"{result.size} ({result.parameters / 1e6:.1f} M)", result.engine, f"{result.speed:,.0f}",
            *(_format_ratio(report.ratio_to_torch(result, precision)) for precision in TORCH_ENGINES),
            f"{report.peak_fraction(result.speed.median * result.flops):.0%}", f"{result.memory / 1e6:,.0f} MB",
        )
        for result in report.training
    ]  # fmt: skip
    return ReportTable("Training", headings, rows)


def _bulk_decoding_table(report: BenchmarkReport) -> ReportTable:
    headings = (
        "model", "beam", "engine", "batch size", "sentences/s", "output tokens/s", f"× best {_REFERENCE_ENGINE}",
        "of float32 peak", "output length", "BLEU",
    )  # fmt: skip
    rows = [
        (
            result.model, str(result.beam), result.engine, result.batch_size,
            result.speed.format(_format_significant), f"{result.token_speed:,.0f}",
            _format_ratio(report.bulk_ratio(result)),
            f"{report.peak_fraction(result.speed.median * result.flops):.0%}",
            "–".join(map(str, sorted(set(result.output_lengths)))),
            "" if result.bleu is None else f"{result.bleu:.1f}",
        )
        for result in _sort_by_model_and_beam(report.decoding)
    ]  # fmt: skip
    return ReportTable("Decoding in bulk", headings, rows)


def _latency_table(report: BenchmarkReport) -> ReportTable:
    headings = ("model", "beam", "engine", "median, ms", "95th percentile, ms", f"× best {_REFERENCE_ENGINE}")
    rows = [
        (
            result.model, str(result.beam), result.engine, result.latency.format(_format_significant),
            result.latency_95.format(_format_significant), _format_ratio(report.latency_ratio(result)),
        )
        for result in _sort_by_model_and_beam(report.decoding)
    ]  # fmt: skip
    return ReportTable("Decoding, one sentence at a time", headings, rows)


def _sort_by_model_and_beam(results: Sequence[DecodingResult]) -> list[DecodingResult]:
    return sorted(results, key=lambda result: (result.model, result.beam))


def _format_significant(number: float) -> str:
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def _format_ratio(measure: SampleStats | None) -> str:
    return "" if measure is None else f"{measure:.2f}"
