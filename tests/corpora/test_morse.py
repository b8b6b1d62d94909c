"""Recordings of Morse code, judged by a decoder that knows the rhythm and the code, not how the sound was made."""

import math
import re
import wave
from collections import Counter
from dataclasses import replace
from itertools import groupby
from zipfile import ZIP_STORED, ZipFile

import numpy as np
import pytest

from dragoman.corpora.morse import (
    HELD_OUT_SPEEDS,
    MORSE_CODE,
    PROCEDURE_WORDS,
    SPLITS,
    TRAINING_SPEEDS,
    Keying,
    draw_keying,
    draw_recording,
    synthesise,
    write_message,
    write_morse_corpus,
)
from dragoman.errors import UserError

RATE = 8000
SIZES = {"train": 30, "valid": 10, "test": 10}
# The code as a binary tree, level by level: a dot leads to the left, a dash to the right.
TREE = "ET" + "IANM" + "SURWDKGO" + "HVF*L*PJBXCYZQ**" + "54*3***2**+****16=/*****7***8*90"
SIX_ELEMENTS = {"..--..": "?", ".-.-.-": ".", "--..--": ","}


def rng(seed=1):
    return np.random.default_rng(seed)


def decode_character(code):
    if len(code) == 6:
        return SIX_ELEMENTS[code]
    return TREE[int("1" + code.replace(".", "0").replace("-", "1"), base=2) - 2]


def amplitude(recording, pitch_hz):
    """Return the amplitude of a tone, averaged over about two cycles."""
    shifted = 2 * recording * np.exp(-2j * np.pi * pitch_hz / RATE * np.arange(len(recording)))
    window = np.hanning(round(4 * RATE / pitch_hz))
    return np.abs(np.convolve(shifted, window / window.sum(), mode="same"))


def is_keyed(recording, pitch_hz):
    tone = amplitude(recording, pitch_hz)
    return tone > tone.max() / 2


def run_samples(recording, pitch_hz):
    """Return the lengths of key down, key up, …, key down, without the silence at both ends."""
    runs = [(key, len(list(run))) for key, run in groupby(is_keyed(recording, pitch_hz))]
    assert (runs[0][0], runs[-1][0]) == (False, False)
    return np.array([length for _, length in runs[1:-1]])


def decode(recording, keying):
    """Return the text of a recording without noise or fading, whatever the hand."""
    dots = run_samples(recording, keying.pitch_hz) / (RATE * keying.dot_seconds)
    elements = np.where(dots[::2] > 1.6, "-", ".")
    gaps = np.select([dots[1::2] > 4.5, dots[1::2] > 1.7], [" / ", " "], "")
    words = "".join(element + gap for element, gap in zip(elements, [*gaps, ""], strict=True)).split(" / ")
    return " ".join("".join(map(decode_character, word.split())) for word in words)


def content_words(text):
    """Return the words of a message without punctuation marks, "/P" and procedure words."""
    return set(re.sub(r"[?,=+]|/P", "", text).split()) - PROCEDURE_WORDS


def read_manifest(folder, split):
    return [tuple(line.split("\t")) for line in (folder / f"{split}.tsv").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def drawn():
    return {split: [draw_recording(split, index) for index in range(400)] for split in SPLITS}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("morse")
    write_morse_corpus(folder, SIZES)
    return folder


# The code and the rhythm


def test_the_table_is_international_morse_code():
    assert {character: decode_character(code) for character, code in MORSE_CODE.items()} == {c: c for c in MORSE_CODE}
    assert set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") < set(MORSE_CODE)


@pytest.mark.parametrize("speed", [12, 20, 30])
def test_a_dash_is_3_dots_and_the_gaps_are_1_3_and_7_dots(speed):
    recording = synthesise("AN E", Keying(words_per_minute=speed, pitch_hz=500), RATE, rng())
    dots = [1, 1, 3, 3, 3, 1, 1, 7, 1]  # ·− −·   ·
    np.testing.assert_allclose(run_samples(recording, 500), np.array(dots) * RATE * 1.2 / speed, atol=3)


@pytest.mark.parametrize("speed", [12, 20, 30])
def test_the_speed_counts_the_word_paris(speed):
    recording = synthesise("PARIS PARIS", Keying(words_per_minute=speed, pitch_hz=500), RATE, rng())
    runs = run_samples(recording, 500)
    first_word_and_gap = runs[: (len(runs) + 1) // 2].sum()
    assert first_word_and_gap == pytest.approx(60 * RATE / speed, abs=3)


def test_a_sloppy_hand_has_its_own_dash_and_gaps():
    keying = Keying(pitch_hz=500, dash_dots=3.5, element_gap_dots=0.9, letter_gap_dots=2.7, word_gap_dots=6)
    dots = run_samples(synthesise("AN E", keying, RATE, rng()), 500) / (RATE * keying.dot_seconds)
    np.testing.assert_allclose(dots, [1, 0.9, 3.5, 2.7, 3.5, 0.9, 1, 6, 1], atol=0.01)


def test_an_uneven_hand_varies_each_length_within_two_standard_deviations():
    keying = Keying(words_per_minute=12, pitch_hz=500, unevenness=0.1)
    dots = run_samples(synthesise("5" * 40, keying, RATE, rng()), 500)[::2] / (RATE * keying.dot_seconds)
    assert dots.std() == pytest.approx(0.1, rel=0.25)
    assert (dots.min(), dots.max()) == pytest.approx((0.8, 1.2), abs=0.01)


def test_the_silence_before_and_after_has_the_given_length():
    keying = Keying(lead_in_seconds=0.5, trailing_seconds=0.25)
    recording = synthesise("E", keying, RATE, rng())
    sounding = np.flatnonzero(recording)
    assert sounding[0] == pytest.approx(0.5 * RATE, abs=2)
    assert len(recording) - sounding[-1] == pytest.approx(0.25 * RATE, abs=2)


def test_every_character_is_decoded_from_a_clean_recording():
    text = " ".join(["".join(MORSE_CODE), "CQ DE DL1ABC/P K"])
    keying = Keying(words_per_minute=18)
    assert decode(synthesise(text, keying, RATE, rng()), keying) == text


def test_every_message_can_be_decoded_with_one_threshold_however_sloppy_the_hand(drawn):
    for text, keying, _ in drawn["train"][:100] + drawn["test"][:50]:
        clean = replace(keying, snr_db=math.inf, fading_depth=0.0)
        assert decode(synthesise(text, clean, RATE, rng()), clean) == text


# The sound


@pytest.mark.parametrize("snr_db", [3.0, 10.0, 30.0])
@pytest.mark.parametrize("fading_depth", [0.0, 0.7])
def test_the_noise_has_the_power_that_was_asked_for(snr_db, fading_depth):
    keying = Keying(snr_db=snr_db, fading_depth=fading_depth, fading_seconds=3, lead_in_seconds=2, unevenness=0.1)
    noisy = synthesise("THE QUICK BROWN FOX", keying, RATE, rng())
    even = replace(keying, snr_db=math.inf, fading_depth=0.0)
    keyed = is_keyed(synthesise("THE QUICK BROWN FOX", even, RATE, rng()), keying.pitch_hz)
    noise_power = np.square(noisy[: 2 * RATE]).mean()
    tone_power = np.square(noisy[keyed]).mean() - noise_power
    assert 10 * math.log10(tone_power / noise_power) == pytest.approx(snr_db, abs=0.5)


def test_the_noise_is_white():
    noise = synthesise("E", Keying(snr_db=10, lead_in_seconds=8), RATE, rng())[: 8 * RATE]
    octants = [part.mean() for part in np.array_split(np.square(np.abs(np.fft.rfft(noise))), 8)]
    assert 10 * math.log10(max(octants) / min(octants)) < 0.5


def test_fading_moves_the_amplitude_between_its_limits():
    keying = Keying(words_per_minute=0.3, fading_depth=0.7, fading_seconds=4, peak=1.0)  # a dash of 12 seconds
    tone = amplitude(synthesise("T", keying, RATE, rng()), keying.pitch_hz)[RATE : 12 * RATE]
    assert (tone.min(), tone.max()) == pytest.approx((0.3, 1.0), abs=0.01)


def test_the_tone_rises_in_the_given_time():
    keying = Keying(words_per_minute=5, pitch_hz=1000, rise_seconds=0.05, lead_in_seconds=0.1)
    tone = amplitude(synthesise("T", keying, RATE, rng()), 1000) / keying.peak
    at = [tone[round(RATE * (0.1 + share * 0.05))] for share in (0.25, 0.5, 0.75)]
    assert at == pytest.approx([0.5 - 0.5 * math.cos(math.pi * share) for share in (0.25, 0.5, 0.75)], abs=0.02)


@pytest.mark.parametrize("split", SPLITS)
def test_recordings_are_finite_and_not_clipped(drawn, split):
    for _, keying, recording in drawn[split]:
        assert recording.dtype == np.float32
        assert np.isfinite(recording).all()
        assert np.abs(recording).max() == pytest.approx(keying.peak)
        assert keying.peak <= 0.9


@pytest.mark.parametrize("split", SPLITS)
def test_recordings_last_about_2_5_to_6_seconds(drawn, split):
    seconds = [len(recording) / RATE for *_, recording in drawn[split]]
    assert min(seconds) > 2.2
    assert max(seconds) < 6.5


def test_another_sampling_rate_gives_the_same_sound():
    slow, fast = (synthesise("TEST", Keying(pitch_hz=500), rate, rng()) for rate in (RATE, 2 * RATE))
    np.testing.assert_allclose(fast[::2][: len(slow)], slow, atol=0.02)


# The splits


def test_held_out_words_do_not_occur_in_another_split(drawn):
    used = {split: {word for text, *_ in drawn[split] for word in content_words(text)} for split in SPLITS}
    assert used["train"].isdisjoint(used["valid"] | used["test"])
    assert used["valid"].isdisjoint(used["test"])


@pytest.mark.parametrize("split", SPLITS)
def test_every_message_has_one_to_four_words_and_one_of_its_own_split(drawn, split):
    counts = Counter(len(text.split()) for text, *_ in drawn[split])
    assert set(counts) <= {1, 2, 3, 4}
    assert all(content_words(text) for text, *_ in drawn[split])


@pytest.mark.parametrize("split", SPLITS)
def test_call_signs_are_in_every_split(drawn, split):
    calls = {word for text, *_ in drawn[split] for word in re.findall(r"\b[A-Z0-9]{1,2}\d[A-Z]{1,3}\b", text)}
    assert len(calls) > 20


def test_training_uses_every_character(drawn):
    assert {*"".join(text for text, *_ in drawn["train"])} == {*MORSE_CODE, " "}


def test_held_out_speeds_do_not_occur_in_training(drawn):
    speeds = {split: {keying.words_per_minute for _, keying, _ in drawn[split]} for split in SPLITS}
    assert speeds["train"] == set(TRAINING_SPEEDS)
    assert speeds["valid"] == speeds["test"] == set(HELD_OUT_SPEEDS)
    assert set(TRAINING_SPEEDS).isdisjoint(HELD_OUT_SPEEDS)
    assert (min(TRAINING_SPEEDS), max(TRAINING_SPEEDS)) == (12, 30)


def test_the_noise_varies_in_training_and_is_fixed_elsewhere(drawn):
    ratios = {split: [keying.snr_db for _, keying, _ in drawn[split]] for split in SPLITS}
    assert set(ratios["valid"] + ratios["test"]) == {10.0}
    assert 3 <= min(ratios["train"]) < 4
    assert 29 < max(ratios["train"]) <= 30


def test_valid_and_test_are_keyed_by_other_hands(drawn):
    assert {keying for _, keying, _ in drawn["valid"]}.isdisjoint(keying for _, keying, _ in drawn["test"])


def test_a_keying_is_drawn_from_the_given_speeds_and_ratios():
    drawn = [draw_keying(rng(seed), speeds=(40,), snr_db=(0, 1)) for seed in range(20)]
    assert {keying.words_per_minute for keying in drawn} == {40}
    assert all(0 <= keying.snr_db <= 1 for keying in drawn)


# The files


@pytest.mark.parametrize("split", SPLITS)
def test_manifest_and_archive_agree(corpus, split):
    manifest = read_manifest(corpus, split)
    with ZipFile(corpus / f"{split}.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [path for path, _ in manifest]
        assert {entry.compress_type for entry in archive.infolist()} == {ZIP_STORED}
    assert len(manifest) == SIZES[split]
    assert [text for _, text in manifest] == [draw_recording(split, index)[0] for index in range(SIZES[split])]


def test_a_file_holds_its_recording_as_16_bit_mono(corpus):
    *_, recording = draw_recording("train", 7)
    path, _ = read_manifest(corpus, "train")[7]
    with ZipFile(corpus / "train.zip") as archive, archive.open(path) as file, wave.open(file) as reader:
        assert reader.getparams()[:4] == (1, 2, RATE, len(recording))
        samples = np.frombuffer(reader.readframes(len(recording)), "<i2")
    np.testing.assert_allclose(samples / 32767, recording, atol=0.51 / 32767)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(corpus, tmp_path):
    write_morse_corpus(tmp_path / "same", SIZES)
    write_morse_corpus(tmp_path / "other", SIZES, seed=2)
    files = [f"{split}.{suffix}" for split in SPLITS for suffix in ("tsv", "zip")]
    for file in files:
        assert (tmp_path / "same" / file).read_bytes() == (corpus / file).read_bytes()
        assert (tmp_path / "other" / file).read_bytes() != (corpus / file).read_bytes()


def test_a_recording_does_not_depend_on_the_sizes(corpus, tmp_path):
    write_morse_corpus(tmp_path, {"test": 3, "train": 5})
    for split, count in (("test", 3), ("train", 5)):
        assert read_manifest(tmp_path, split) == read_manifest(corpus, split)[:count]
        with ZipFile(tmp_path / f"{split}.zip") as small, ZipFile(corpus / f"{split}.zip") as large:
            assert all(small.read(path) == large.read(path) for path in small.namelist())


def test_a_message_is_written_as_its_own_file(tmp_path):
    first, second, other = (tmp_path / f"{name}.wav" for name in ("first", "second", "other"))
    for path, text in ((first, "CQ DE DRAGOMAN"), (second, "CQ DE DRAGOMAN"), (other, "CQ")):
        write_message(path, text)
    with wave.open(str(first)) as reader:
        assert reader.getparams()[:3] == (1, 2, RATE)
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()


def test_progress_is_reported_for_each_recording(tmp_path):
    steps = []
    write_morse_corpus(tmp_path, {"valid": 2, "test": 3}, on_progress=steps.append)
    assert steps == [1] * 5


def test_an_interrupted_call_leaves_no_manifest_and_no_part_of_an_archive(tmp_path):
    def interrupt(_):
        raise KeyboardInterrupt

    write_morse_corpus(tmp_path, {"test": 1})
    for split in ("test", "train"):
        with pytest.raises(KeyboardInterrupt):
            write_morse_corpus(tmp_path, {split: 2}, on_progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["test.zip"]  # the complete archive of the first call


# Errors


def test_an_unknown_split_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r'no split "tset"; choose train, valid, test. Did you mean "test"'):
        write_morse_corpus(tmp_path / "new", {"train": 1, "tset": 1})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [("GRÜN", 'no Morse code for "Ü"'), ("cq", 'no Morse code for "c"'), (" ", "must not be empty")],
)
def test_a_text_that_cannot_be_sent_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        synthesise(text, Keying(), RATE, rng())


def test_a_tone_above_half_the_sampling_rate_is_refused():
    with pytest.raises(UserError, match="A tone of 600 Hz needs more than 1200 samples per second"):
        synthesise("E", Keying(), 1200, rng())
