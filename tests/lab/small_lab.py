"""A small default model of the laboratory, and checks of reports, for tests."""

import math

from matplotlib.image import imread

from dragoman.lab import comparison, plots
from dragoman.lab.laboratory import SMALL_RECIPE, Laboratory
from dragoman.lab.plan import TrainingSpeed
from dragoman.report import ReportPicture, ReportTable


def shrink(monkeypatch, *, learned=True, seconds_per_step=2.0):
    """Make the small model tiny and its trainings a few steps long, and the pictures coarse.

    After so few steps nothing is learned, so the criterion is lowered unless `learned` is False.
    """
    monkeypatch.setattr(plots, "DPI", 40)
    if learned:
        monkeypatch.setattr(comparison, "LEARNED_SHARE", 100.0)

    def measure_speed(_lab, variants, _corpus=None):
        return TrainingSpeed(dict.fromkeys(variants, seconds_per_step), overhead_seconds=0.0)

    monkeypatch.setattr(Laboratory, "measure_speed", measure_speed)
    for branch, settings in {
        "tokenizer": {"kind": "words", "size": 300},
        "model": {"layers": 1, "width": 16, "inner_width": 16, "heads": 2},
        "training": {
            "batch_tokens": 64,
            "validate_every": 4,
            "checkpoint_every": 20,
            "threads": 1,
            "warmup": 10,
            "steps": 8,
        },
    }.items():
        monkeypatch.setitem(SMALL_RECIPE, branch, {**SMALL_RECIPE[branch], **settings})


def check_report(report, lab, *, tables, pictures):
    """Check that a report has its tables, its pictures as files, findings, and only finite numbers."""
    found = [part for part in report.parts if isinstance(part, ReportTable)]
    assert len(found) == tables
    assert all(len(row) == len(table.header) for table in found for row in table.rows)
    drawn = [part for part in report.parts if isinstance(part, ReportPicture)]
    assert len(drawn) == pictures
    assert all(imread(lab.folder / part.file).std() > 0.02 and part.caption for part in drawn)
    assert report.findings
    assert all(math.isfinite(number) for number in numbers(report.results))


def numbers(value):
    """Yield every number of a tree of results."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, int | float):
        yield value
