"""`dragoman transcribe`: write down what is said in recordings."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dragoman.cli.line_io import load_for_task
from dragoman.cli.options import BeamOption, DeviceOption, LengthPenaltyOption, PrecisionOption, RunArgument
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.tasks.transcribe import Transcriber

TranscriptFormat = Literal["text", "srt", "vtt", "json"]
_SUBTITLE_FORMATS = ("srt", "vtt")


def transcribe(
    run: RunArgument,
    recording: Annotated[
        list[str],
        typer.Argument(
            help="Recordings: WAV, FLAC, MP3 or OGG files, or members of a zip archive (archive.zip/a.wav)."
        ),
    ],
    output_format: Annotated[
        TranscriptFormat,
        typer.Option("--format", help="text: one line per recording; srt, vtt: subtitles; json: with times of words."),
    ] = "text",
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    precision: PrecisionOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Transcribe each RECORDING with the model in RUN: one output line per recording.

    A long recording is cut at silences and read piece by piece, so that it may be longer than memory. With
    --format srt or vtt the output is the subtitles of one recording; with --format json each recording gives one line
    with its segments and, if the model has a CTC output, the times of its words."""
    if output_format in _SUBTITLE_FORMATS and len(recording) > 1:
        raise UserError(f"--format {output_format} is for one recording; got {len(recording)}. Call it once for each.")
    from dragoman.data.signal_corpus import check_signal
    from dragoman.tasks.transcribe import Transcriber

    model = load_for_task(run, "transcribe", device)
    assert isinstance(model, Transcriber), f"{type(model)} is not a transcriber"
    options = {"beam": beam, "length_penalty": length_penalty, "precision": precision}
    for path in recording:  # all of them before the first is read
        check_signal(path)
    for path in recording:
        _print_transcript(model, path, output_format, options)


def _print_transcript(model: "Transcriber", path: str, output_format: str, options: dict[str, Any]) -> None:
    """Print the transcript of one recording; segments are printed as soon as they are there."""
    from dragoman.tasks.subtitles import format_srt, format_vtt

    segments = model.transcribe_segments(path, **options)
    if output_format == "json":
        listed = [asdict(segment) for segment in segments]
        text = " ".join(filter(None, (segment["text"] for segment in listed)))
        print(json.dumps({"file": path, "text": text, "segments": listed}, ensure_ascii=False), flush=True)
    elif output_format == "text":
        separator = ""
        for segment in segments:
            if segment.text:
                print(separator + segment.text, end="", flush=True)
                separator = " "
        print(flush=True)
    else:
        for block in (format_srt if output_format == "srt" else format_vtt)(segments):
            print(block, end="", flush=True)
