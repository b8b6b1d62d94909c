"""Scores as plain text for a terminal or a pipe: no colours, no boxes."""

from collections.abc import Sequence

from dragoman.evaluation.scores import Row, Scores, Sentence


def scores_table(scores: Scores) -> str:
    """Write one score a line, numbers under one another, the signature at the end."""
    return aligned([[score.name, score.number, score.signature] for score in scores])


def length_table(rows: Sequence[Row]) -> str:
    """Write the scores by source length, one range a line under a line of headings."""
    body = [[r.words, f"{r.sentences}", f"{r.bleu:.1f}", f"{r.chrf:.1f}", f"{r.ratio:.2f}"] for r in rows]
    return aligned([["source words", "sentences", "BLEU", "chrF", "length ratio"], *body], right=True)


def worst_table(sentences: Sequence[Sentence]) -> str:
    """Write each sentence as a block: where it is and how it scored, then source, hypothesis and reference."""
    return "\n\n".join(
        f"line {sentence.line}, chrF {sentence.chrf:.1f}\n"
        f"  source      {sentence.source}\n"
        f"  hypothesis  {sentence.hypothesis}\n"
        f"  reference   {sentence.reference}"
        for sentence in sentences
    )


def aligned(lines: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """Pad the cells of each column to one width, with two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = str.rjust if right else str.ljust
    return "\n".join("  ".join(map(pad, line, widths)).rstrip() for line in lines)
