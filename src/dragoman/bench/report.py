"""What came out: tables for people, JSON for programs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.bench.decoding import DecodingResult
from dragoman.bench.machine import Machine
from dragoman.bench.measure import Measure, ratio
from dragoman.bench.plan import Plan
from dragoman.bench.training import PLAIN, TrainingResult

RIVAL = "CTranslate2"


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first columns name something, the others are numbers."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    names: int  # columns that are no numbers


@dataclass(frozen=True)
class Report:
    """All figures of one benchmark, and what must be known to read them."""

    machine: Machine
    plan: Plan
    notes: list[str]
    peaks: dict[str, Measure]  # billions of operations a second, by the kind of numbers multiplied
    training: list[TrainingResult]
    decoding: list[DecodingResult]

    def fraction(self, operations_per_second: float) -> float:
        """Return the share of the machine's float32 peak that a speed amounts to."""
        return operations_per_second / (self.peaks["float32"].median * 1e9)

    def plain(self, one: TrainingResult, precision: str) -> Measure | None:
        """Return how many times as fast as the plain loop in some precision a training is."""
        theirs = [each for each in self.training if (each.size, each.contender) == (one.size, PLAIN[precision])]
        return ratio(one.speed, theirs[0].speed) if theirs else None

    def best_rival(self, one: DecodingResult, speed: Callable[[DecodingResult], float]) -> DecodingResult | None:
        """Return the CTranslate2 that is fastest with the same model at the same beam."""
        same = [each for each in self.decoding if (each.model, each.beam) == (one.model, one.beam)]
        return max((each for each in same if each.contender.startswith(RIVAL)), key=speed, default=None)

    def bulk_ratio(self, one: DecodingResult) -> Measure | None:
        """Return how many times as many sentences a second it decodes as the best CTranslate2."""
        rival = self.best_rival(one, lambda each: each.speed.median)
        return ratio(one.speed, rival.speed) if rival else None

    def single_ratio(self, one: DecodingResult) -> Measure | None:
        """Return how many times as soon it answers as the best CTranslate2, one sentence at a time."""
        rival = self.best_rival(one, lambda each: -each.latency.median)
        return ratio(rival.latency, one.latency) if rival else None

    def tables(self) -> list[Table]:
        """Return everything that was measured as tables."""
        tables = [peak_table(self)]
        if self.training:
            tables.append(training_table(self))
        if self.decoding:
            tables += [bulk_table(self), single_table(self)]
        return tables

    def facts(self) -> list[str]:
        """Return the sentences without which the numbers mean nothing."""
        rounds = f"{self.plan.repeats} rounds" if self.plan.repeats > 1 else "one round"
        return [
            f"Machine: {self.machine}.",
            f"Contenders took turns, {rounds} after a warm-up, each in a process of its own. A number is the median; "
            "the lowest and the highest are in brackets. A ratio (×) is the median of the ratios of each round.",
            *self.notes,
        ]

    def to_markdown(self) -> str:
        """Return all as a piece of Markdown to paste."""
        parts = ["\n".join(f"- {fact}" for fact in self.facts())]
        parts += [f"**{table.title}**\n\n{markdown_table(table)}" for table in self.tables()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return all as plain dictionaries, lists, strings and numbers."""
        plan = {name: str(value) if name == "run" and value else value for name, value in asdict(self.plan).items()}
        return {
            "machine": asdict(self.machine),
            "plan": plan,
            "notes": self.notes,
            "peak_gigaflops": {kind: speed.to_json() for kind, speed in self.peaks.items()},
            "training": [self.training_json(each) for each in self.training],
            "decoding": [self.decoding_json(each) for each in self.decoding],
        }

    def training_json(self, one: TrainingResult) -> dict[str, Any]:
        """Return one training with what it is compared to."""
        ratios = {PLAIN[precision]: self.plain(one, precision) for precision in PLAIN}
        return plain_json(one) | {
            "fraction_of_float32_peak": self.fraction(one.speed.median * one.flops),
            "ratio_to": {name: found.to_json() for name, found in ratios.items() if found},
        }

    def decoding_json(self, one: DecodingResult) -> dict[str, Any]:
        """Return one decoding with what it is compared to."""
        ratios = {"bulk": self.bulk_ratio(one), "one_at_a_time": self.single_ratio(one)}
        return plain_json(one) | {
            "fraction_of_float32_peak": self.fraction(one.speed.median * one.flops),
            "ratio_to_best_ctranslate2": {name: found.to_json() for name, found in ratios.items() if found},
        }


def plain_json(result: TrainingResult | DecodingResult) -> dict[str, Any]:
    """Return a result's own fields."""
    fields = vars(result).items()
    return {name: value.to_json() if isinstance(value, Measure) else value for name, value in fields}


def peak_table(report: Report) -> Table:
    """Show what the machine can do at all."""
    side = report.plan.effort.side
    rows = [(kind, speed.written(whole)) for kind, speed in report.peaks.items()]
    return Table(f"This machine's matrix products, {side}³", ("numbers", "billion operations/s"), rows, names=1)


def training_table(report: Report) -> Table:
    """Show who trains how fast."""
    headings = (
        "size", "contender", "target tokens/s", "× plain float32", "× plain bfloat16", "of float32 peak", "memory",
    )  # fmt: skip
    rows = [
        (
            f"{each.size} ({each.parameters / 1e6:.1f} M)",
            each.contender,
            each.speed.written(whole),
            times(report.plain(each, "float32")),
            times(report.plain(each, "bfloat16")),
            f"{report.fraction(each.speed.median * each.flops):.0%}",
            f"{each.memory / 1e6:,.0f} MB",
        )
        for each in report.training
    ]
    return Table("Training", headings, rows, names=2)


def bulk_table(report: Report) -> Table:
    """Show who decodes how fast when there is much to do."""
    headings = (
        "model", "beam", "contender", "batches", "sentences/s", "output tokens/s", f"× best {RIVAL}", "of float32 peak",
        "pieces", "BLEU",
    )  # fmt: skip
    rows = [
        (
            each.model,
            str(each.beam),
            each.contender,
            each.batches,
            each.speed.written(significant),
            each.token_speed.written(whole),
            times(report.bulk_ratio(each)),
            f"{report.fraction(each.speed.median * each.flops):.0%}",
            "–".join(map(str, sorted(set(each.lengths)))),
            "" if each.bleu is None else f"{each.bleu:.1f}",
        )
        for each in in_order(report.decoding)
    ]
    return Table("Decoding in bulk", headings, rows, names=4)


def single_table(report: Report) -> Table:
    """Show how long one waits for one sentence."""
    headings = ("model", "beam", "contender", "median, ms", "95th percentile, ms", f"× best {RIVAL}")
    rows = [
        (
            each.model,
            str(each.beam),
            each.contender,
            each.latency.written(significant),
            each.latency_95.written(significant),
            times(report.single_ratio(each)),
        )
        for each in in_order(report.decoding)
    ]
    return Table("Decoding, one sentence at a time", headings, rows, names=3)


def in_order(results: Sequence[DecodingResult]) -> list[DecodingResult]:
    """Put those together that are to be compared."""
    return sorted(results, key=lambda each: (each.model, each.beam))


def markdown_table(table: Table) -> str:
    """Write a table in Markdown."""
    rule = ["---"] * table.names + ["---:"] * (len(table.headings) - table.names)
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.headings, rule, *table.rows))


def whole(number: float) -> str:
    """Write a number without decimals."""
    return f"{number:,.0f}"


def significant(number: float) -> str:
    """Write a number with two digits at least."""
    return f"{number:.1f}" if number < 100 else whole(number)


def times(measure: Measure | None) -> str:
    """Write a ratio; nothing where there is none."""
    return "" if measure is None else measure.written(lambda number: f"{number:.2f}")
