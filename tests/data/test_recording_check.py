"""`dragoman check` for recordings: what is odd is found with its place, and real corpora are not."""

import io
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dragoman.data.corpus_check import DataReport, Finding
from dragoman.data.recording_check import TrainingLimits, check_recordings
from dragoman.data.signal_corpus import SignalCorpus

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
LIMITS = TrainingLimits(rate=8000, positions_per_second=25, max_seconds=60)
TEXTS = ("one two three", "yes it is", "go on then", "what is that", "start again", "the next one")


def speech(pitch: int, seconds: float = 2.0, rate: int = 8000) -> np.ndarray:
    """Return something like speech: four sounds a second with pauses, and a little noise."""
    times = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(pitch).normal(0, 0.001, len(times))
    return 0.5 * np.sin(2 * np.pi * pitch * times) * (times * 4 % 1 < 0.6) + noise


def wav(samples: np.ndarray, rate: int = 8000, channels: int = 1) -> bytes:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.repeat(samples, channels).clip(-1, 1) * 32767).astype("<i2").tobytes())
    return data.getvalue()


GOOD = {f"{pitch}.wav": (wav(speech(pitch)), text) for pitch, text in zip(range(200, 800, 100), TEXTS, strict=True)}


@pytest.fixture
def corpus_with(tmp_path):
    """Write good recordings and others into a folder, with their table."""

    def written(others: dict[str, tuple[bytes | None, str]] | None = None, name: str = "train") -> SignalCorpus:
        entries = {**(GOOD if name == "train" else {}), **(others or {})}
        for path, (content, _) in entries.items():
            if content is not None:
                (tmp_path / path).write_bytes(content)
        (tmp_path / f"{name}.tsv").write_text("".join(f"{path}\t{text}\n" for path, (_, text) in entries.items()))
        return SignalCorpus(tmp_path / f"{name}.tsv")

    return written


def check(corpus: SignalCorpus, valid: SignalCorpus | None = None, limits: TrainingLimits = LIMITS) -> DataReport:
    return check_recordings(corpus, valid, limits, threads=2)


def found(report: DataReport, words: str) -> Finding:
    """Return the one finding that says so."""
    (finding,) = [finding for finding in report if words in finding.message]
    return finding


def test_good_recordings_are_only_described(corpus_with):
    report = check(corpus_with())
    assert {finding.severity for finding in report} == {"note"}
    assert "6 recordings" in str(report) and "12.0 s at 8,000 Hz: shortest 2.00 s" in str(report)
    assert "67 characters of text, 14 different" in str(report)
    assert report.verdict == "No errors, no warnings."


@pytest.mark.parametrize(
    ("content", "text", "words", "severity"),
    [
        (None, "good morning", "cannot be read", "error"),
        (b"", "good morning", "cannot be read", "error"),
        (b"These are words.", "good morning", "cannot be read", "error"),
        (wav(speech(333))[:-1000], "good morning", "cannot be read", "error"),
        (wav(np.zeros(0)), "good morning", "cannot be read", "error"),
        (wav(speech(333)), "", "empty texts", "warning"),
        (wav(np.zeros(16000)), "good morning", "silent recordings", "warning"),
        (wav(np.random.default_rng(1).normal(0, 0.1, 16000)), "good morning", "one level throughout", "warning"),
        (wav(0.9 * np.sin(np.arange(16000))), "good morning", "one level throughout", "warning"),
        (wav(np.pad(speech(333), (0, 120000))), "good morning then and there", "silent for more than 80%", "warning"),
        (wav(np.pad(speech(333), (24000, 0))), "good morning then", "more than 2 s of silence", "note"),
        (wav(4 * speech(333)), "good morning", "clipped", "warning"),
        (wav(0.005 * speech(333)), "good morning", "quiet recordings", "note"),
        (wav(speech(333, rate=4000), rate=4000), "good morning", "at less than 8,000 Hz", "warning"),
        (wav(speech(333), channels=2), "good morning", "several channels", "note"),
        (wav(speech(333, 0.05)), "a", "shorter than 0.1 s", "warning"),
        (wav(speech(333, 61.0)), "good morning " * 30, "longer than 60 s", "warning"),
        (wav(speech(333)), "abc" * 17, "more characters than encoder positions", "warning"),
        (wav(speech(333)), "good morning to everybody who is in here", "very much text", "warning"),
        (wav(speech(333)), "I", "very little text", "warning"),
        (GOOD["200.wav"][0], "good morning", "another one, and another text", "warning"),
        (GOOD["200.wav"][0], "one two three", "sound and the text of another one", "warning"),
        (wav(speech(333)), "GOOD MORNING", "in capitals, while most are not", "note"),
        (wav(speech(333)), "21 dogs", "digits", "note"),
        (wav(speech(333)), "a caf\u00c3\u00a9 there", "Windows-1252", "warning"),
    ],
)  # fmt: skip
def test_what_is_odd_is_found_with_its_place(corpus_with, content, text, words, severity):
    report = check(corpus_with({"odd.wav": (content, text)}))
    finding = found(report, words)
    assert (finding.severity, finding.count, len(finding.examples)) == (severity, 1, 1)
    assert "line 7" in finding.examples[0] and "odd.wav" in finding.examples[0]


def test_every_missing_file_is_counted_and_three_are_shown(corpus_with):
    report = check(corpus_with({f"gone{number}.wav": (None, "good morning") for number in range(5)}))
    assert report.has_errors
    assert (found(report, "cannot be read").count, len(found(report, "cannot be read").examples)) == (5, 3)
    assert "gone0.wav does not exist" in found(report, "cannot be read").examples[0]
    assert "this data cannot be used" in report.verdict


def test_one_rate_for_all_is_a_note_that_says_what_to_set(corpus_with):
    report = check(corpus_with(), limits=TrainingLimits(rate=16000, positions_per_second=25, max_seconds=60))
    assert "nothing above 4,000 Hz. --set audio.rate=8000 is enough" in found(report, "[audio] rate").message
    assert not [finding for finding in report if finding.severity == "warning"]


def test_what_validation_has_in_common_with_training_is_found(tmp_path, corpus_with):
    corpus = corpus_with()
    (tmp_path / "new.wav").write_bytes(wav(speech(333)))
    rows = ["200.wav\tone two three\tann", "new.wav\tyes it is\tann", "new.wav\tzebra\tbob"]
    (tmp_path / "valid.tsv").write_text("\n".join(rows))
    (tmp_path / "train.tsv").write_text((tmp_path / "train.tsv").read_text().replace("three\n", "three\tann\n"))
    report = check(corpus, SignalCorpus(tmp_path / "valid.tsv"))
    assert found(report, "also in the training recordings").count == 1
    assert "1 speaker of the training recordings (ann)" in str(report)
    assert "2 of 3 texts" in str(report)
    assert "line 3 (new.wav), bz: zebra" in found(report, "no training text has").examples


def test_a_folder_is_looked_at_though_some_of_it_has_no_partner(tmp_path):
    for name in ("a.wav", "b.wav", "sub/c.wav"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(wav(speech(300 + len(name))))
    (tmp_path / "a.txt").write_text("A dog.")
    (tmp_path / "sub/c.txt").write_text("A cat.")
    (tmp_path / "lone.txt").write_text("Nothing.")
    report = check(SignalCorpus(tmp_path))
    assert found(report, "without a text").examples == (str(tmp_path / "b.wav"),)
    assert "texts without a recording, which are ignored: 1, first lone.txt" in str(report)
    assert found(report, "2 recordings in").count == 2


def test_recordings_without_any_text_are_counted_and_three_are_shown(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.wav").write_bytes(wav(speech(300)))
    (finding,) = check(SignalCorpus(tmp_path))
    assert finding.message == "training: recordings without a text beside them (name.txt for name.wav)"
    assert (finding.severity, finding.count, len(finding.examples)) == ("error", 4, 3)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["yes", "yes"], "1 text for 2 recordings; it occurs 2 times: yes"),
        (["yes", "yes", "no"], "2 different texts for 3 recordings; the most frequent occurs 2 times: yes"),
    ],
)
def test_texts_that_occur_again_are_a_note(texts, words, corpus_with):
    others = {f"{number}.wav": (wav(speech(300 + number)), text) for number, text in enumerate(texts)}
    assert f"training: {words}" in str(check(corpus_with(others, "other")))


def test_members_of_an_archive_are_read_where_they_lie(tmp_path):
    with zipfile.ZipFile(tmp_path / "train.zip", "w") as archive:
        for path, (content, _) in GOOD.items():
            archive.writestr(path, content)
        archive.writestr("broken.wav", GOOD["200.wav"][0][:5000])
    rows = [f"{path}\t{text}\n" for path, (_, text) in GOOD.items()]
    (tmp_path / "train.tsv").write_text("".join([*rows, "broken.wav\tgood morning\n"]))
    report = check(SignalCorpus(tmp_path / "train.tsv"))
    assert "line 7: broken.wav is truncated" in found(report, "cannot be read").examples[0]
    assert "6 recordings" in str(report)


def test_a_manifest_that_cannot_be_read_is_an_error_and_the_other_is_still_looked_at(tmp_path, corpus_with):
    (tmp_path / "valid.tsv").write_text("no tab here\n")
    report = check(corpus_with(), SignalCorpus(tmp_path / "valid.tsv"))
    assert "valid.tsv, line 1 has no tab" in found(report, "no tab").message
    assert "6 recordings" in str(report)


def test_progress_is_told_of_both_parts(corpus_with):
    told = []
    valid = corpus_with({"new.wav": (wav(speech(333)), "yes")}, "valid")
    check_recordings(corpus_with(), valid, LIMITS, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(number, 7) for number in range(1, 8)]


def test_the_command_prints_the_report_and_fails_if_there_are_errors(corpus_with, command):
    good = command("check", "--task", "transcribe", "--file", corpus_with().manifest, "--set", "audio.rate=8000")
    assert good.code == 0
    assert good.out.splitlines()[-1] == "No errors, no warnings."
    bad = command("check", "--task", "transcribe", "--file", corpus_with({"gone.wav": (None, "gone")}).manifest)
    assert bad.code == 2
    assert bad.out.startswith("error:   1 × training: recordings that cannot be read\n")


def test_a_task_whose_files_are_only_checked_by_training_is_refused(command, write):
    result = command("check", "--task", "pronounce", "--file", write("words.tsv", ["dog\tD AO G"]))
    assert result.code == 2
    assert "`dragoman train` checks" in result.err


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason=f"no data sets in {SHARED}")
@pytest.mark.parametrize(("name", "warnings"), [("an4", 0), ("yesno", 0), ("prompts", 7)])
def test_real_corpora_have_few_warnings(name, warnings):
    report = check(SignalCorpus(SHARED / name / "train.tsv"))
    assert sum(finding.count for finding in report if finding.severity == "warning") == warnings
    assert not report.has_errors
