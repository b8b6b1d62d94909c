"""`dragoman check`: validate a parallel corpus before training."""

import typer

from dragoman.cli.options import (
    PairsOption,
    SourceOption,
    TargetOption,
    ValidPairsOption,
    ValidSourceOption,
    ValidTargetOption,
)
from dragoman.cli.progress import status_spinner


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
