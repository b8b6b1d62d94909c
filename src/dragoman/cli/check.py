"""`dragoman check`: a look at the data before an hour is spent on it."""

from typing import Annotated

import typer

from dragoman.cli.progress import busy

Source = Annotated[str | None, typer.Option(help="Text to translate from, one sentence a line; .gz is fine.")]
Target = Annotated[str | None, typer.Option(help="Its translation, line by line.")]
Pairs = Annotated[str | None, typer.Option(help="Instead of the two: one file, separated by tabs.")]
ValidSource = Annotated[str | None, typer.Option(help="Text to validate with.")]
ValidTarget = Annotated[str | None, typer.Option(help="Its translation.")]
ValidPairs = Annotated[str | None, typer.Option(help="Instead of the two: one file, separated by tabs.")]


def check(
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    valid_pairs: ValidPairs = None,
) -> None:
    """Look a parallel text over: line counts, empty lines, duplicates, odd lengths, encoding, swapped sides."""
    from dragoman.data.check import check as look_over
    from dragoman.data.corpus import Corpus

    corpus = Corpus.of(source, target, pairs)
    given = valid_source or valid_target or valid_pairs
    valid = Corpus.of(valid_source, valid_target, valid_pairs) if given else None
    with busy("Reading"):
        report = look_over(corpus, valid)
    print(report)
    raise typer.Exit(2 if report.has_errors else 0)
