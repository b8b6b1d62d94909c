"""Transcription, from recordings to text: in Python and on the command line, with a model that has hardly learned."""

import json
import re
import shutil
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dragoman
from dragoman.corpora.morse import draw_recording
from dragoman.data.sound_files import read_sound
from dragoman.errors import TrainingStopped
from dragoman.model_files import read_tensors
from dragoman.models.head_ablation import ablate_heads
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.head_report import MeasuredText, load_measured_pairs, measure_heads
from dragoman.tasks.recording_facts import find_silent_positions, link_tokens_to_times
from dragoman.tasks.transcribe import Sound, Transcriber, segment_recording
from dragoman.training.events import StopRequest
from dragoman.training.loop import TrainingStep

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(transcriber) -> Transcriber:
    return Transcriber.load(transcriber)


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    """A recording of some seconds."""
    path = tmp_path_factory.mktemp("recordings") / "message.wav"
    write_wav(path, draw_recording("test", 0)[2], 8000)
    return path


def write_wav(path: Path, samples: np.ndarray, rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def weights(run: Path) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in read_tensors(run / "model.safetensors")[0].items()}


def test_a_file_samples_and_a_member_of_an_archive_are_transcribed_alike(model, recording, tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(recording, "a.wav")
    text = model.transcribe(recording)
    assert isinstance(text, str)
    samples, rate = read_sound(recording, "message")
    assert model.transcribe(Sound(samples, rate)) == text
    assert model.transcribe([str(recording), f"{tmp_path}/all.zip/a.wav"]) == [text, text]
    best = model.transcribe(recording, n_best=2, details=True)
    assert best[0].text == text and best[0].score >= best[1].score


def test_a_resumed_training_ends_with_the_same_bits(transcriber, transcriber_recipe, tmp_path):
    stopped, stop = transcriber_recipe(tmp_path / "stopped"), StopRequest()

    def stop_after_two_steps(event):
        if isinstance(event, TrainingStep) and event.number == 2:
            stop.requested = True

    with pytest.raises(TrainingStopped):
        dragoman.train(stopped, on_event=stop_after_two_steps, stop=stop)
    dragoman.train(stopped, resume=True)

    assert weights(tmp_path / "stopped") == weights(transcriber)


def test_a_long_recording_is_cut_and_none_of_it_is_lost(model, recording, tmp_path):
    samples, rate = read_sound(recording, "message")
    long = np.concatenate([samples, np.zeros(rate // 2, np.float32)] * 6)
    write_wav(tmp_path / "long.wav", long, rate)

    parts = [sound.samples for _, sound in segment_recording(tmp_path / "long.wav", 3.0)]
    assert len(parts) > 3
    assert np.array_equal(np.concatenate(parts), read_sound(tmp_path / "long.wav", "long")[0])

    model.max_length, kept = 75, model.max_length  # 3 seconds
    try:
        segments = list(model.transcribe_segments(tmp_path / "long.wav"))
        text = model.transcribe(tmp_path / "long.wav")
    finally:
        model.max_length = kept
    assert len(segments) == len(parts)
    assert segments[0].start_seconds == 0.0
    assert segments[-1].end_seconds == pytest.approx(len(long) / rate)
    assert text.split() == [word for segment in segments for word in segment.text.split()]


def test_words_have_times_in_order_within_their_segment(model, recording):
    for segment in model.transcribe_segments(recording):
        assert " ".join(word.text for word in segment.words) == " ".join(segment.text.split())
        times = [time for word in segment.words for time in (word.start_seconds, word.end_seconds)]
        assert times == sorted(times)
        assert all(0 <= time <= segment.end_seconds + 0.04 for time in times)


def test_the_command_prints_a_line_per_recording_subtitles_or_json(transcriber, recording, command, model):
    text = model.transcribe(recording)
    assert command("transcribe", transcriber, recording, recording).out == f"{text}\n{text}\n"
    told = json.loads(command("transcribe", transcriber, recording, "--format", "json").out)
    assert told["text"] == text and told["segments"][0]["start_seconds"] == 0.0
    assert command("transcribe", transcriber, recording, "--format", "vtt").out.startswith("WEBVTT")
    two = command("transcribe", transcriber, recording, recording, "--format", "srt")
    assert two.code == 2 and "is for one recording" in two.err


def test_all_recordings_are_looked_up_before_the_first_is_transcribed(transcriber, recording, command):
    result = command("transcribe", transcriber, recording, "missing.wav")
    assert (result.code, result.out) == (2, "")
    assert "missing.wav does not exist" in result.err


def test_how_a_recording_in_an_archive_is_given_is_said(transcriber, recording, command, tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(recording, "a.wav")
    result = command("transcribe", transcriber, tmp_path / "all.zip")
    assert result.code == 2
    assert "all.zip is a ZIP archive; expected a sound file" in result.err
    assert f"Name a recording in it: {tmp_path}/all.zip/NAME.wav." in result.err


def test_evaluate_prints_both_error_rates_and_the_worst_recordings(transcriber, morse_corpus, command, tmp_path):
    result = command(
        "evaluate", transcriber, "--reference", morse_corpus / "valid.tsv", "--worst", "1", "-o", tmp_path / "out.txt"
    )
    assert result.code == 0
    assert "WER" in result.out and "CER" in result.out and "unit:words" in result.out
    assert re.search(r"^recording \d+, \S+: \d+ edits? in \d+ words?$", result.out, re.MULTILINE)
    again = command(
        "evaluate",
        "--task",
        "transcribe",
        "--hypotheses",
        tmp_path / "out.txt",
        "--reference",
        morse_corpus / "valid.tsv",
    )
    assert again.out.splitlines()[0] == result.out.splitlines()[0]
    (tmp_path / "short.txt").write_text("A\n")
    short = command(
        "evaluate",
        "--task",
        "transcribe",
        "--hypotheses",
        tmp_path / "short.txt",
        "--reference",
        morse_corpus / "valid.tsv",
    )
    assert short.code == 2 and "has 1 line but" in short.err


def test_the_card_and_info_describe_a_model_that_reads_sound(transcriber, command):
    card = (transcriber / "README.md").read_text()
    assert f"dragoman attention {transcriber} recording.wav -o attention.html" in card
    (vocabulary,) = re.findall(r"^- Vocabulary: (characters, \d+ tokens)$", card, re.MULTILINE)
    assert json.loads(command("info", transcriber, "--json").out)["vocabulary"] == vocabulary


def test_attention_is_shown_over_the_recording(transcriber, recording, command, tmp_path):
    assert command("attention", transcriber, recording, "-o", tmp_path / "look.png").code == 0
    assert (tmp_path / "look.png").read_bytes().startswith(b"\x89PNG")
    assert command("attention", transcriber, recording, "-o", tmp_path / "look.html").code == 0
    record = dragoman.load(transcriber).inspect(recording)
    assert record.cross.shape[-1] == len(record.source_pieces) == -(-len(record.frames) // 4)
    assert record.source_pieces[:3] == ("0.00", "0.04", "0.08")


def test_a_recording_is_inspected_without_a_head_with_a_beginning_and_with_its_search(model, recording):
    whole = model.inspect(recording)
    ablated = whole.rerun(ablate_heads=[("encoder", 0, 1)])
    assert whole.can_ablate and ablated.ablated_heads == (("encoder", 0, 1),)
    assert np.array_equal(ablated.encoder, whole.encoder)  # the ablation acts on what comes after the weights
    assert not np.array_equal(ablated.cross, whole.cross)
    begun = model.inspect(recording, prefix="QR", trace=True)
    assert begun.target_text.startswith("QR") and begun.forced_length == 2
    assert begun.beam.attention.shape == (len(begun.beam.nodes), len(begun.source_pieces))
    assert model.inspect(recording, target="SOS").target_pieces[:3] == ("S", "O", "S")
    with pytest.raises(dragoman.UserError, match="has no head"):
        model.inspect(recording, ablate_heads=[("encoder", 7, 0)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transcribe", "RUN", "missing.wav"], "missing.wav"),
        (["heads", "RUN", "--source", "a", "--target", "b"], "cannot be measured on a text and its translation"),
        (["translate", "RUN", "text"], "is a transcriber; use `dragoman transcribe`"),
        (["export", "RUN", "-o", "out"], "transcriber"),
        (["shortlist", "RUN"], "is a transcriber"),
        (["evaluate", "RUN"], "--reference is missing"),
    ],
)
def test_what_a_transcriber_cannot_do_is_refused(arguments, message, transcriber, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command(*[transcriber if part == "RUN" else part for part in arguments])
    assert result.code == 2
    assert message in result.err


def test_the_head_report_measures_heads_over_time_and_the_loss_without_each(transcriber, command, tmp_path):
    run = Run(shutil.copytree(transcriber, tmp_path / "run"))
    report = json.loads(command("heads", run.folder, "--json").out)
    heads = {(head["kind"], head["head"]): head for head in report["heads"]}
    assert list(heads) == [(kind, number) for kind in ("encoder", "decoder", "cross") for number in range(2)]
    assert report["data"]["unit"] == "recording" and report["data"]["sentences"] == 4
    assert 0 < heads["encoder", 0]["silence"] < 1 and heads["encoder", 0]["width"] > 0
    assert heads["encoder", 0]["rare"] is None and heads["decoder", 0]["rare"] is not None
    assert heads["cross", 1]["alignment"] is not None and 0 <= heads["cross", 1]["monotonic"] <= 1
    model = dragoman.load(run.folder)
    model.model = ablate_heads(model.model, [("encoder", 0, 1)])
    pairs = MeasuredText.from_pairs(model, load_measured_pairs(run, model, None), 4)
    without = measure_heads(model, pairs, False, lambda _event: None)["loss"]
    assert heads["encoder", 1]["importance"] == pytest.approx(without - report["loss"], abs=1e-5)
    assert "4 recordings of " in command("heads", run.folder).out


def test_silence_and_the_time_of_a_token_are_known_for_the_positions_of_the_encoder(model):
    frames = np.concatenate([np.zeros((20, 16)), np.ones((20, 16)), np.zeros((18, 16))])
    assert find_silent_positions(frames).tolist() == [True] * 4 + [False] * 7 + [True] * 4
    links = link_tokens_to_times(model, frames, model.target_tokenizer.encode("SOS"))
    assert links.shape == (3, 15) and links.any(axis=1).all()
    assert (np.diff(links.argmax(axis=1)) >= 0).all()
    assert link_tokens_to_times(model, frames[:8], model.target_tokenizer.encode("SOS")) is None


def test_a_recording_that_cannot_be_read_is_named_with_its_line_before_training(tmp_path, command):
    (tmp_path / "list.tsv").write_text("a.wav\tA\nb.wav\tB\n")
    (tmp_path / "a.wav").write_bytes(b"this is text")
    result = command("train", "--task", "transcribe", "--file", tmp_path / "list.tsv", "--run", tmp_path / "run")
    assert result.code == 2
    assert "line 2" in result.err and "b.wav" in result.err


def test_a_text_task_has_no_audio_section():
    with pytest.raises(dragoman.UserError, match=r'task "translate" reads no sound; remove \[audio\]'):
        Recipe.from_table({"audio": {"rate": 8000}})
    with pytest.raises(dragoman.UserError, match=r'task "translate" needs \[model\] frame_width = 0: it reads text'):
        Recipe.from_table({"model": {"frame_width": 80}})
    with pytest.raises(dragoman.UserError, match="frame_width = at least 1: it reads sound"):
        Recipe.from_table({"task": "transcribe", "model": {"frame_width": 0}})
    assert Recipe(task="transcribe").audio is not None
    assert "[audio]" in Recipe(task="transcribe").to_toml()
    assert "[audio]" not in Recipe().to_toml()
