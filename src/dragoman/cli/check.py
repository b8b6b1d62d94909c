"""`dragoman check`: a look at the data before an hour is spent on it."""

from typing import Annotated

import typer

from dragoman.cli.progress import status_spinner

SourceOption = Annotated[str | None, typer.Option(help="Text to translate from, one sentence a line; .gz is fine.")]
TargetOption = Annotated[str | None, typer.Option(help="Its translation, line by line.")]
PairsOption = Annotated[str | None, typer.Option(help="Instead of the two: one file, separated by tabs.")]
ValidSourceOption = Annotated[str | None, typer.Option(help="Text to validate with.")]
ValidTargetOption = Annotated[str | None, typer.Option(help="Its translation.")]
ValidPairsOption = Annotated[str | None, typer.Option(help="Instead of the two: one file, separated by tabs.")]


def check(
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
) -> None:
    """Look a parallel text over: line counts, empty lines, duplicates, odd lengths, encoding, swapped sides."""
    from dragoman.data.corpus import ParallelCorpus
    from dragoman.data.corpus_check import check_corpus as look_over

    corpus = ParallelCorpus.from_files(source, target, pairs)
    given = valid_source or valid_target or valid_pairs
    valid = ParallelCorpus.from_files(valid_source, valid_target, valid_pairs) if given else None
    with status_spinner("Reading"):
        report = look_over(corpus, valid)
    print(report)
    raise typer.Exit(2 if report.has_errors else 0)
