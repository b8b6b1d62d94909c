"""BLEU, chrF and TER of translations."""

import json
from pathlib import Path
from typing import Any

import dragoman
from dragoman.cli.evaluations.question import Question
from dragoman.cli.progress import busy, counting, say
from dragoman.errors import UserError


def evaluate_translations(asked: Question) -> None:
    """Print BLEU, chrF and TER of a run's translations, or of somebody else's."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import scores, tables

    refuse_unclear(asked)
    references = list(read_lines(str(asked.reference), say))
    sources = list(read_lines(asked.source, say)) if asked.source else None
    if asked.run:
        ours = translations(asked.run, sources, len(references), asked)
    else:
        ours = list(read_lines(str(asked.hypotheses), say))
    asked.write(ours)
    theirs = translations(asked.against, sources, len(references), asked) if asked.against else None
    with busy("Scoring"):
        found = scores.score(ours, references)
        rows = scores.by_length(sources, ours, references) if sources else []
        bad = scores.worst(sources or [""] * len(ours), ours, references, asked.worst) if asked.worst else []
        compared = scores.compare(ours, theirs, references) if theirs is not None else None
    if asked.as_json:
        result: dict[str, Any] = scores.to_json(found)
        result["by_length"] = [scores.to_json(row) for row in rows]
        result["worst"] = [scores.to_json(sentence) for sentence in bad]
        result["against"] = scores.to_json(compared) if compared else None
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    parts = [tables.scores_table(found), tables.length_table(rows) if rows else ""]
    print("\n\n".join(filter(None, [*parts, tables.worst_table(bad) if bad else "", str(compared or "")])))


def refuse_unclear(asked: Question) -> None:
    """Say which of the options are missing, mean nothing here, or contradict each other."""
    asked.refuse("parameters", "sentences", "ignore_stress")
    if asked.reference is None:
        raise UserError("There is nothing to compare with: give --reference, the right translations line by line.")
    if (asked.run is None) == (asked.hypotheses is None):
        raise UserError("Give either a RUN, whose translations of --source are scored, or --hypotheses made elsewhere.")
    if asked.source is None and (asked.run or asked.against):
        raise UserError("A run needs a text to translate: give --source.")


def translations(run: Path, sources: list[str] | None, expected: int, asked: Question) -> list[str]:
    """Translate with the model in a run, after checking that the lines fit together."""
    assert sources is not None, "refuse_unclear has seen to that"
    if len(sources) != expected:
        raise UserError(
            f"--source has {len(sources):,} lines but --reference has {expected:,}; line n of one must "
            "translate line n of the other."
        )
    model = dragoman.load(run, device=asked.device)
    with counting(f"Translating with {run}", len(sources)) as progress:
        found: list[str] = model.translate(sources, progress=progress, **asked.decoding)
        return found
