"""`dragoman check`: validate a parallel corpus before training."""

from typing import Annotated

import typer

from dragoman.cli.progress import status_spinner

SourceOption = Annotated[str | None, typer.Option(help="Source text, one sentence per line; may be gzipped (.gz).")]
TargetOption = Annotated[str | None, typer.Option(help="Target text, aligned line by line.")]
PairsOption = Annotated[str | None, typer.Option(help="Source and target in one tab-separated file.")]
ValidSourceOption = Annotated[str | None, typer.Option(help="Source text of the validation set.")]
ValidTargetOption = Annotated[str | None, typer.Option(help="Target text of the validation set.")]
ValidPairsOption = Annotated[str | None, typer.Option(help="Validation set in one tab-separated file.")]


def check(
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
) -> None:
    """Check a parallel corpus for unequal line counts, empty lines, duplicates, unusual lengths, encoding errors and
    swapped sides."""
    from dragoman.data.corpus import ParallelCorpus
    from dragoman.data.corpus_check import check_corpus

    corpus = ParallelCorpus.from_files(source, target, pairs)
    has_validation = valid_source or valid_target or valid_pairs
    valid = ParallelCorpus.from_files(valid_source, valid_target, valid_pairs) if has_validation else None
    with status_spinner("Reading"):
        report = check_corpus(corpus, valid)
    print(report)
    raise typer.Exit(2 if report.has_errors else 0)
