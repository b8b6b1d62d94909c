"""Score tables as plain text."""

from collections.abc import Mapping, Sequence

from dragoman.errors import format_count
from dragoman.evaluation.brackets import BracketScores, SentenceCounts, percentage
from dragoman.evaluation.error_rates import Confusion, ErrorRates
from dragoman.evaluation.scores import LengthRangeScores, SentenceScore, TranslationScores

_COUNT_FIELDS = ("sentences", "errors", "skipped", "scored")
_NOTHING = "(nothing)"
_TAB = "\t"
_METRIC_FIELDS = (
    "precision", "recall", "f1", "exact_match", "average_crossing", "no_crossing", "two_or_less_crossing",
    "tagging_accuracy",
)  # fmt: skip


def scores_table(scores: TranslationScores) -> str:
    """Return a table of one score per line, with its signature."""
    return align_columns([[score.name, score.number, score.signature] for score in scores])


def length_table(rows: Sequence[LengthRangeScores]) -> str:
    """Return a table of the scores by source length, one range per line."""
    body = [[r.words, f"{r.sentences}", f"{r.bleu:.1f}", f"{r.chrf:.1f}", f"{r.ratio:.2f}"] for r in rows]
    return align_columns([["source words", "sentences", "BLEU", "chrF", "length ratio"], *body], right=True)


def worst_sentences_table(sentences: Sequence[SentenceScore]) -> str:
    """Return a block per sentence: its line and chrF, then source, hypothesis and reference."""
    return "\n\n".join(
        f"line {sentence.line}, chrF {sentence.chrf:.1f}\n"
        f"  source      {sentence.source}\n"
        f"  hypothesis  {sentence.hypothesis}\n"
        f"  reference   {sentence.reference}"
        for sentence in sentences
    )


def rates_table(rates: ErrorRates) -> str:
    """Return a table of one score per line, with its counts and signature."""
    return align_columns([[rate.name, rate.number, rate.counted, rate.signature] for rate in rates])


def labels_table(by_label: Mapping[str, ErrorRates]) -> str:
    """Return a table of the scores of each label and their unweighted mean."""
    names = [rate.name for rate in next(iter(by_label.values()))]
    body = [
        [name, f"{len(rates.word_results):,}", *(rate.number for rate in rates)] for name, rates in by_label.items()
    ]
    columns = zip(*([rate.value for rate in rates] for rates in by_label.values()), strict=True)
    means = ["mean", "", *(f"{sum(column) / len(by_label):.2f}" for column in columns)]
    return align_columns([["label", "words", *names], *body, means])


def confusions_table(confusions: Sequence[Confusion]) -> str:
    """Return a table of confusions, the most frequent first."""
    body = [
        [confusion.expected or _NOTHING, confusion.found or _NOTHING, f"{confusion.times:,}"]
        for confusion in confusions
    ]
    return align_columns([["expected", "found", "times"], *body])


def worst_items_table(rates: ErrorRates, count: int) -> str:
    """Return a block per word or recording: its number and edits, then the output and every reference."""
    return "\n\n".join(
        f"{rates.item} {result.number}, {result.source.replace(_TAB, ' ')}: "
        f"{format_count(result.edits, 'edit')} in {format_count(result.length, rates.unit)}\n"
        f"  output     {result.output}\n" + "\n".join(f"  reference  {reference}" for reference in result.references)
        for result in rates.worst(count)
    )


def brackets_table(scores: BracketScores) -> str:
    """Return a table of the scores of trees, overall and for short sentences, followed by the rules."""
    both = (scores.overall, scores.short)
    counts = [[name, *(f"{getattr(part, name):,}" for part in both)] for name in _COUNT_FIELDS]
    measures = [[name, *(f"{getattr(part, name):.2f}" for part in both)] for name in _METRIC_FIELDS]
    names = {name: name.replace("_", " ").replace("f1", "F1") for name in (*_COUNT_FIELDS, *_METRIC_FIELDS)}
    width = max(map(len, names.values()))
    body = [[names[name].ljust(width), *numbers] for name, *numbers in [*counts, *measures]]
    return (
        align_columns([["", "all", f"up to {format_count(scores.rules.cutoff, 'word')}"], *body], right=True)
        + f"\n\n{scores.rules}"
    )


def sentence_counts_table(lines: Sequence[int], sentences: Sequence[SentenceCounts]) -> str:
    """Return a table of the counts of each sentence."""
    headings = [
        "line", "words", "status", "recall", "precision", "matched", "reference", "hypothesis", "crossing", "tagged",
        "right tags", "tagging accuracy",
    ]  # fmt: skip
    return align_columns(
        [headings, *(_sentence_cells(*pair) for pair in zip(lines, sentences, strict=True))], right=True
    )


def _sentence_cells(line_number: int, counts: SentenceCounts) -> list[str]:
    accuracy = percentage(counts.right_tags, counts.words)
    numbers = (counts.matched, counts.in_reference, counts.in_hypothesis, counts.crossing)
    return [
        f"{line_number}", f"{counts.length}", counts.status, f"{counts.recall:.2f}", f"{counts.precision:.2f}",
        *map(str, numbers), f"{counts.words}", f"{counts.right_tags}", f"{accuracy:.2f}",
    ]  # fmt: skip


def align_columns(lines: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """Return the lines with the cells of each column padded to one width."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = str.rjust if right else str.ljust
    return "\n".join("  ".join(map(pad, line, widths)).rstrip() for line in lines)
