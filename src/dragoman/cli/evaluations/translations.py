"""BLEU, chrF and TER of translations."""

import json
from pathlib import Path
from typing import Any

import dragoman
from dragoman.cli.evaluations.options import EvaluateOptions
from dragoman.cli.progress import print_stderr, progress_bar, status_spinner
from dragoman.errors import UserError


def evaluate_translations(options: EvaluateOptions) -> None:
    """Print BLEU, chrF and TER of a run's translations or of --hypotheses."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import scores, tables

    _check_options(options)
    references = list(read_lines(str(options.reference), print_stderr))
    sources = list(read_lines(options.source, print_stderr)) if options.source else None
    if options.run:
        ours = _translate_sources(options.run, sources, len(references), options)
    else:
        ours = list(read_lines(str(options.hypotheses), print_stderr))
    options.write_outputs(ours)
    theirs = _translate_sources(options.against, sources, len(references), options) if options.against else None
    with status_spinner("Scoring"):
        found = scores.score_translations(ours, references)
        rows = scores.score_by_length(sources, ours, references) if sources else []
        bad = (
            scores.worst_sentences(sources or [""] * len(ours), ours, references, options.worst)
            if options.worst
            else []
        )
        compared = scores.compare_systems(ours, theirs, references) if theirs is not None else None
    if options.as_json:
        result: dict[str, Any] = scores.to_json(found)
        result["by_length"] = [scores.to_json(row) for row in rows]
        result["worst"] = [scores.to_json(sentence) for sentence in bad]
        result["against"] = scores.to_json(compared) if compared else None
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    parts = [tables.scores_table(found), tables.length_table(rows) if rows else ""]
    print("\n\n".join(filter(None, [*parts, tables.worst_sentences_table(bad) if bad else "", str(compared or "")])))


def _check_options(options: EvaluateOptions) -> None:
    """Raise a UserError for missing, unsupported or conflicting options."""
    options.reject("parameters", "sentences", "ignore_stress")
    if options.reference is None:
        raise UserError("--reference is missing: give the reference translations, line by line.")
    if (options.run is None) == (options.hypotheses is None):
        raise UserError("Give either a RUN, which translates --source, or --hypotheses, a file of translations.")
    if options.source is None and (options.run or options.against):
        raise UserError("--source is missing: give the text that the run translates.")


def _translate_sources(run: Path, sources: list[str] | None, expected: int, options: EvaluateOptions) -> list[str]:
    """Translate the sources with the model in a run, after checking the number of lines."""
    assert sources is not None, "_check_options requires it"
    if len(sources) != expected:
        raise UserError(
            f"--source has {len(sources):,} lines but --reference has {expected:,}; line n of one must "
            "translate line n of the other."
        )
    model = dragoman.load(run, device=options.device)
    with progress_bar(f"Translating with {run}", len(sources)) as progress:
        found: list[str] = model.predict(sources, progress=progress, **options.decoding)
        return found
