"""How progress is written."""

import pytest

from dragoman.cli.display import join_fitting
from dragoman.cli.progress import format_duration


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.4, "0 s"), (89, "89 s"), (90, "1 min 30 s"), (132.6, "2 min 13 s"), (599.7, "10 min"), (5400, "1 h 30 min")],
)
def test_a_time_is_written_as_a_person_would(seconds, written):
    assert format_duration(seconds) == written


@pytest.mark.parametrize(("width", "line"), [(80, "one  two  three"), (14, "one  two"), (2, "one")])
def test_a_narrow_terminal_shows_what_is_wanted_most(width, line):
    assert join_fitting(["one", "two", "three"], width) == line
