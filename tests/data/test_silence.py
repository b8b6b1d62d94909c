import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.silence import split_at_silence

RATE = 8000

quick = settings(max_examples=60, deadline=None)


def recording_of(*parts: tuple[float, float], noise: float = 0.0, seed: int = 1) -> np.ndarray:
    """Return tones, each a pair of its amplitude and its seconds, one after another, in noise."""
    tones = [
        amplitude * np.sin(2 * np.pi * 300 / RATE * np.arange(round(seconds * RATE))) for amplitude, seconds in parts
    ]
    clean = np.concatenate(tones) if tones else np.zeros(0)
    return (clean + noise * np.random.default_rng(seed).normal(size=len(clean))).astype(np.float32)


def speech_of(seconds: float, *, noise: float = 0.001, seed: int = 1) -> np.ndarray:
    """Return tones of random lengths and loudness between pauses of random lengths."""
    random = np.random.default_rng(seed)
    parts = [
        part
        for _ in range(math.ceil(seconds / 0.3))
        for part in ((random.uniform(0.05, 0.5), random.uniform(0.2, 1.5)), (0.0, random.uniform(0.1, 0.6)))
    ]
    return recording_of(*parts, noise=noise, seed=seed)[: round(seconds * RATE)]


SPEECH = speech_of(20)


def divide(samples: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Return the samples in blocks of these sizes, over and over."""
    ends = list(itertools.takewhile(lambda end: end < len(samples), itertools.accumulate(itertools.cycle(sizes))))
    return np.split(samples, ends)


def stretches_of(samples: np.ndarray, max_seconds: float, **options) -> list[tuple[float, np.ndarray]]:
    return list(split_at_silence([samples], RATE, max_seconds=max_seconds, **options))


def seconds_of(stretches: list[tuple[float, np.ndarray]]) -> list[float]:
    return [len(samples) / RATE for _, samples in stretches]


def cuts_of(stretches: list[tuple[float, np.ndarray]]) -> list[float]:
    return [start for start, _ in stretches[1:]]


@quick
@given(st.floats(0.001, 25), st.floats(0.3, 9), st.integers(0, 5))
def test_no_sample_is_lost_or_repeated_and_no_stretch_is_too_long_or_tiny(seconds, max_seconds, seed):
    samples = speech_of(seconds, seed=seed)
    stretches = stretches_of(samples, max_seconds)
    assert np.concatenate([np.zeros(0, np.float32), *[part for _, part in stretches]]).tobytes() == samples.tobytes()
    ends = list(itertools.accumulate(len(part) for _, part in stretches))
    assert [start for start, _ in stretches] == [end / RATE for end in [0, *ends][: len(stretches)]]
    assert all(length <= max_seconds + 1e-9 for length in seconds_of(stretches))
    assert len(stretches) <= 1 or min(seconds_of(stretches)) >= max(0.1, max_seconds / 4 - 0.02)


@quick
@given(st.lists(st.integers(1, 60_000), min_size=1, max_size=5), st.floats(0.5, 9))
def test_the_division_into_blocks_makes_no_difference(sizes, max_seconds):
    whole = stretches_of(SPEECH, max_seconds)
    blocks = [*divide(SPEECH, sizes), SPEECH[:0]]
    divided = list(split_at_silence(blocks, RATE, max_seconds=max_seconds))
    assert [(start, part.tobytes()) for start, part in divided] == [(start, part.tobytes()) for start, part in whole]


def test_blocks_of_single_samples_make_no_difference():
    samples = speech_of(3)
    divided = list(split_at_silence(divide(samples, [1]), RATE, max_seconds=1))
    assert cuts_of(divided) == cuts_of(stretches_of(samples, 1))


def test_a_recording_that_is_not_too_long_comes_out_whole():
    samples = recording_of((0.0, 2), (0.3, 0.5), (0.0, 2.5))
    assert len(samples) == 5 * RATE
    [(start, whole)] = split_at_silence(divide(samples, [700]), RATE, max_seconds=5)
    assert (start, whole.tobytes(), whole.dtype) == (0.0, samples.tobytes(), np.float32)
    assert len(stretches_of(samples, 4.999)) == 2


def test_no_rounding_of_the_limit_cuts_a_recording():
    samples = np.ones(29, np.float32)  # 0.29 * 100 is 28.999999999999996
    assert len(list(split_at_silence([samples], 100, max_seconds=0.29))) == 1


@pytest.mark.parametrize("noise", [0.0, 0.0001, 0.003, 0.03, 0.1])
@pytest.mark.parametrize("loudness", [1.0, 0.02])
@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_cuts_lie_inside_pauses(noise, loudness, offset):
    random = np.random.default_rng(7)
    parts = [part for _ in range(40) for part in ((random.uniform(0.2, 0.5), random.uniform(0.5, 1.5)), (0.0, 0.4))]
    samples = loudness * recording_of(*parts, noise=noise) + np.float32(offset)
    edges = [0.0, *itertools.accumulate(round(seconds * RATE) / RATE for _, seconds in parts)]
    pauses = list(zip(edges[1::2], edges[2::2], strict=True))
    cuts = cuts_of(stretches_of(samples, 5))
    assert len(cuts) >= 8
    assert all(any(start + 0.1 <= cut <= end - 0.1 for start, end in pauses) for cut in cuts)


def test_the_longest_pause_in_reach_is_cut_in_its_middle():
    tone = (0.3, 1.0)
    samples = recording_of(tone, (0, 0.9), tone, (0, 0.3), tone, (0, 0.6), tone, (0, 0.3), (0.3, 4.0), noise=0.001)
    assert cuts_of(stretches_of(samples, 6))[0] == pytest.approx(4.5, abs=0.03)  # not at 1.45, 3.05 or 5.95


def test_of_equal_pauses_the_last_is_cut():
    samples = recording_of(*[(0.3, 0.6), (0.0, 0.4)] * 12)
    assert cuts_of(stretches_of(samples, 5))[0] == pytest.approx(4.8, abs=0.03)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["quiet first", "loud first"])
def test_a_pause_is_silent_relative_to_the_noise_and_speech_around_it(order):
    """The pauses of the loud part are louder than the speech of the quiet part."""
    quiet, loud = [(0.002, 1.6), (0.00004, 0.4)] * 30, [(1.0, 1.6), (0.02, 0.4)] * 30
    first, second = [quiet, loud][order]
    cuts = cuts_of(stretches_of(recording_of(*first, *second), 7))
    assert all(1.6 < cut % 2 < 2 for cut in cuts if not 53 < cut < 77)
    assert len(cuts) > 18


def test_a_short_gap_is_preferred_to_the_middle_of_a_tone():
    samples = recording_of((0.3, 3.5), (0.0, 0.08), (0.3, 3.5), noise=0.001)
    assert cuts_of(stretches_of(samples, 5)) == [pytest.approx(3.54, abs=0.03)]


def test_without_a_pause_of_the_wanted_length_the_quietest_place_is_cut():
    tone = (0.3, 0.5)
    samples = recording_of((0.3, 2.5), (0.002, 0.4), tone, (0.0, 0.2), *[tone, (0.0, 0.1)] * 9, noise=0.0001)
    assert cuts_of(stretches_of(samples, 4))[0] == pytest.approx(2.7, abs=0.03)
    assert cuts_of(stretches_of(samples, 4, min_silence_seconds=0.6))[0] == pytest.approx(3.5, abs=0.03)


@pytest.mark.parametrize(("amplitude", "noise"), [(0.3, 0.0), (0.0, 0.1)], ids=["tone", "noise"])
def test_sound_without_silence_is_cut_all_the_same(amplitude, noise):
    samples = recording_of((amplitude, 21), noise=noise)
    lengths = seconds_of(stretches_of(samples, 4))
    assert sum(lengths) == pytest.approx(21)
    assert all(1 <= length <= 4 for length in lengths)


def test_digital_silence_is_cut_into_the_longest_stretches_and_yielded():
    stretches = stretches_of(np.zeros(11 * RATE, np.float32), 4)
    assert seconds_of(stretches) == [4, 4, 3]


def test_a_long_silence_between_words_is_yielded_too():
    samples = recording_of((0.3, 2), (0.0, 30), (0.3, 2), noise=0.001)
    stretches = stretches_of(samples, 5)
    spoken = [np.abs(part).max() > 0.1 for _, part in stretches]
    assert (spoken[0], spoken[-1], sum(spoken)) == (True, True, 2)


def test_samples_that_are_not_numbers_do_not_hide_the_pauses():
    samples = recording_of(*[(0.3, 1.5), (0.0, 0.5)] * 5, noise=0.001)
    samples[RATE // 2 : RATE // 2 + 100], samples[5 * RATE] = np.nan, np.inf
    stretches = stretches_of(samples, 4)
    assert np.concatenate([part for _, part in stretches]).tobytes() == samples.tobytes()
    assert all(1.5 < cut % 2 < 2 for cut in cuts_of(stretches))


@pytest.mark.parametrize("blocks", [[], [np.zeros(0, np.float32)] * 3])
def test_an_empty_recording_has_no_stretches(blocks):
    assert list(split_at_silence(blocks, RATE, max_seconds=5)) == []


def test_what_remains_at_the_end_is_never_tiny():
    for extra in range(1, 900, 37):
        samples = recording_of((0.3, 4), (0.0, 0.3), (0.3, 5.7))[: 6 * RATE + extra]
        lengths = seconds_of(stretches_of(samples, 6))
        assert len(lengths) == 2
        assert min(lengths) >= 1.5


def test_an_hour_is_never_in_memory():
    """Read ahead are at most two stretches and a block, and a stretch does not keep more than itself in memory."""
    minute, block = speech_of(60), RATE // 2
    read = 0

    def hour():
        nonlocal read
        for samples in itertools.chain.from_iterable(itertools.repeat(divide(minute, [block]), 60)):
            read += len(samples)
            yield samples

    done, copied = 0, []
    for start, samples in split_at_silence(hour(), RATE, max_seconds=10):
        assert start == done / RATE
        copied.append(samples.base is None)
        assert read - done <= 20 * RATE + block
        done += len(samples)
    assert done == read == 3600 * RATE
    assert all(copied[:-1])


@pytest.mark.parametrize("rate", [1000, 8000, 11025, 16000, 22050, 44100, 48000])
def test_every_usual_rate_works(rate):
    samples = np.random.default_rng(3).normal(size=7 * rate + 3).astype(np.float32)
    samples[3 * rate : 4 * rate] *= 0.001
    stretches = list(split_at_silence([samples], rate, max_seconds=5))
    assert [start for start, _ in stretches] == [0.0, pytest.approx(3.5, abs=0.05)]


@pytest.mark.parametrize("max_seconds", [0.0, -1.0, 0.09])
def test_a_limit_shorter_than_a_sound_is_refused(max_seconds):
    with pytest.raises(ValueError, match=f"max_seconds must be at least 0.1, got {max_seconds}"):
        next(split_at_silence([np.zeros(RATE, np.float32)], RATE, max_seconds=max_seconds))
