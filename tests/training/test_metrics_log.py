"""What is drawn from the journal."""

import pytest

from dragoman.training.metrics_log import running_mean


def test_few_points_are_drawn_as_they_are():
    assert running_mean([3.0, 1.0, 2.0]) == pytest.approx([3.0, 1.0, 2.0])


def test_many_points_are_smoothed_over_their_neighbours_and_keep_their_level():
    noisy = [5.0 + (-1) ** place for place in range(1000)]
    smooth = running_mean(noisy)
    assert len(smooth) == 1000
    assert max(abs(value - 5.0) for value in smooth) < 0.2
