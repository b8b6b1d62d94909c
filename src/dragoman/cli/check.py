"""`dragoman check`: validate a parallel corpus before training."""

import typer

from dragoman.cli.options import (
    ColumnsOption,
    PairsOption,
    SourceOption,
    TargetOption,
    ValidPairsOption,
    ValidSourceOption,
    ValidTargetOption,
    parse_columns,
)
from dragoman.cli.progress import print_report, status_spinner
from dragoman.errors import UserError


def check(
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Check a parallel corpus for unequal line counts, empty lines, duplicates, unusual lengths, encoding errors, and
    sides that are swapped in the validation text."""
    from dragoman.data.corpus import ParallelCorpus
    from dragoman.data.corpus_check import check_corpus

    languages = parse_columns(columns)
    if languages and not (pairs or valid_pairs):
        raise UserError("--columns is for a file of --pairs; remove it.")
    corpus = ParallelCorpus.from_files(source, target, pairs, languages=languages)
    has_validation = valid_source or valid_target or valid_pairs
    valid = (
        ParallelCorpus.from_files(valid_source, valid_target, valid_pairs, languages=languages)
        if has_validation
        else None
    )
    with status_spinner("Reading"):
        report = check_corpus(corpus, valid)
    print_report(report)
    raise typer.Exit(2 if report.has_errors else 0)
