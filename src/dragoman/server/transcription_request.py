"""Transcription in the worker, in stages: read the recording, search, time the words, put the answer together.

The result is that of `Transcriber.transcribe_segments`. A recording is read from a file, which the HTTP process removes
when the request ends. Reading pauses between parts of a recording, and stops when it is longer than the limit.
"""

import base64
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dragoman.data.audio import HOP_SECONDS
from dragoman.data.frames import FrameMatrix
from dragoman.data.sound_files import sound_seconds
from dragoman.decoding.hypothesis import Hypothesis
from dragoman.errors import UserError
from dragoman.models.transducer import FRAMES_PER_POSITION
from dragoman.processes import Message
from dragoman.recipe import DecodingConfig
from dragoman.server.encoding import encode_json
from dragoman.server.limits import Limits
from dragoman.server.registry import ServedModel
from dragoman.server.scheduler import Lane
from dragoman.server.stage import Look, Request, Stage, looking
from dragoman.server.translation_request import MIN_SCORE
from dragoman.server.work import check_work, described_hypotheses, recording_work
from dragoman.tasks.subtitles import format_srt, format_vtt
from dragoman.tasks.transcribe import HeardSegment, Sound, Transcriber, TranscriptSegment
from dragoman.viewer.alignment import best_aligned_weights

_SUBTITLES = {"srt": format_srt, "vtt": format_vtt}
_BASE64_BYTES = 4 / 3  # per byte
_Found = tuple[HeardSegment, Hypothesis]
_Transcript = tuple[TranscriptSegment, dict[str, Any]]  # with details


class RefusedRecording(UserError):
    """A recording that cannot be read, or is longer than the server accepts."""

    def __init__(self, message: str, *, code: str = "bad_recording", field: str = "file") -> None:
        super().__init__(message)
        self.code, self.field = code, field


@dataclass(frozen=True)
class TranscriptionRequest:
    """A recording to transcribe, in the file `path` of the message; if it is None, a tone."""

    model: ServedModel
    message: Message
    limits: Limits

    @property
    def transcriber(self) -> Transcriber:
        """The model."""
        transcriber = self.model.translator
        assert isinstance(transcriber, Transcriber), f"{type(transcriber)} is not a transcriber"
        return transcriber

    @property
    def config(self) -> DecodingConfig:
        """The settings of the search."""
        return self.model.decoding_config(self.message.get("beam"), 1)

    def stages(self) -> Request:
        """Transcribe the recording; return the answer as JSON, or as subtitles if the message has their format."""
        (heard,) = yield Stage(self._hear, [self.message.get("path")], [0], lane="single")
        sizes = [segment.positions for segment in heard]
        key, budget = ("transcribe", id(self.model), id(self.config)), self.config.batch_tokens // self.config.beam
        ranked = yield Stage(self._search, [segment.frames for segment in heard], sizes, key=key, budget=budget)
        found = [(segment, best) for segment, (best, *_) in zip(heard, ranked, strict=True)]
        lane: Lane = "inspect" if self._has_details else "single"
        transcripts = yield Stage(self._to_transcripts, found, sizes, lane=lane)
        run = self._subtitles if self.message.get("subtitles") else self._encode
        (answer,) = yield Stage(run, [transcripts], [sum(sizes)], lane="slice")
        return answer

    @property
    def _has_details(self) -> bool:
        return described_hypotheses(self.message) > 0

    def _hear(self, paths: list[str | None], look: Look) -> list[list[HeardSegment]]:
        (path,) = paths
        with self._open(path) as recording:
            return [list(self._segments(recording, look))]

    def _open(self, path: str | None) -> AbstractContextManager[IO[bytes] | Sound]:
        if path is None:
            return nullcontext(self.model.probe_sound())
        try:
            return Path(path).open("rb")
        except OSError:  # whose text names a file of this machine
            raise RefusedRecording("The recording cannot be read; send it again.") from None

    def _segments(self, recording: IO[bytes] | Sound, look: Look) -> Iterator[HeardSegment]:
        """Yield the segments of a recording; raise an error as soon as it is known to be damaged or too long."""
        try:
            if not isinstance(recording, Sound):
                self._check_length(sound_seconds(recording, "The recording"))
            for segment in self.transcriber.hear([recording], pause=look):
                self._check_length(segment.end_seconds)
                yield segment
        except UserError as error:
            if type(error) is not UserError:
                raise
            raise RefusedRecording(str(error)) from None

    def _check_length(self, seconds: float) -> None:
        limit = self.limits.recording_seconds
        if seconds > limit:
            raise RefusedRecording(
                f"The recording is {seconds:,.1f} s long; this server accepts at most {limit:,.1f} s. Split it first.",
                code="too_long",
            )
        check_work(recording_work(seconds, self.config.beam, self.message), self.limits.request_work)
        if self._has_details:
            self._check_size_of_signal(seconds)

    def _check_size_of_signal(self, seconds: float) -> None:
        size = _BASE64_BYTES * self.model.frame_width * seconds / HOP_SECONDS
        if size > self.limits.response_bytes:
            most = seconds * self.limits.response_bytes / size
            raise RefusedRecording(
                f"The recording is {seconds:,.1f} s long; details are sent for at most {most:,.1f} s. Send a shorter "
                "one, or ask for no details.",
                code="answer_too_large",
                field="details",
            )

    def _search(self, items: list[FrameMatrix], look: Look) -> list[list[Hypothesis]]:
        return self.model.engine(self.config).search(items, pause=look)

    def _to_transcripts(self, found: list[_Found], look: Look) -> list[_Transcript]:
        return [
            (
                self.transcriber.to_transcript(segment, best),
                _record_details(self.transcriber, segment, best) if self._has_details else {},
            )
            for segment, best in looking(found, look)
        ]

    def _encode(self, items: list[list[_Transcript]], look: Look) -> list[bytes]:
        """Return the response as JSON."""
        (transcripts,) = items
        encoded = [
            encode_json({**asdict(segment), "score": max(segment.score, MIN_SCORE), **details})
            for segment, details in looking(transcripts, look)
        ]
        text = " ".join(segment.text for segment, _ in transcripts if segment.text)
        seconds = transcripts[-1][0].end_seconds
        return [
            b'{"text":%b,"duration_seconds":%b,"segments":[%b],"model":%b}'
            % (encode_json(text), encode_json(seconds), b",".join(encoded), encode_json(self.model.name))
        ]

    def _subtitles(self, items: list[list[_Transcript]], look: Look) -> list[bytes]:
        """Return subtitles."""
        (transcripts,) = items
        segments = (segment for segment, _ in looking(transcripts, look))
        blocks = _SUBTITLES[self.message["subtitles"]](segments)
        return ["".join(blocks).encode("utf-8", "replace")]


def _record_details(transcriber: Transcriber, segment: HeardSegment, best: Hypothesis) -> dict[str, Any]:
    """Return the frames of a segment, and where the decoder attends to them for each token, as bytes in base64."""
    record = transcriber.record_segment(segment, best.tokens, "")
    weights = best_aligned_weights(record.cross)[0][:-1]  # T S, without END
    decoded = record.target_text
    shift, length = len(decoded) - len(decoded.lstrip()), len(decoded.strip())
    tokens = [
        {"piece": piece, "start": _clip(start - shift, length), "end": _clip(end - shift, length)}
        for piece, (start, end) in zip(record.target_pieces[:-1], record.target_spans[:-1], strict=True)
    ]
    frames = segment.frames
    return {
        "signal": {
            "frames": _to_base64(frames - frames.min(initial=0.0), frames.max(initial=0.0) - frames.min(initial=0.0)),
            "length": frames.shape[0],
            "bands": frames.shape[1],
            "seconds_per_frame": HOP_SECONDS,
        },
        "attention": {
            "tokens": tokens,
            "weights": _to_base64(weights, weights.max(axis=1, keepdims=True, initial=0.0)),
            "positions": weights.shape[1],
            "seconds_per_position": FRAMES_PER_POSITION * HOP_SECONDS,
        },
    }


def _clip(offset: int, length: int) -> int:
    return min(max(0, offset), length)


def _to_base64(values: npt.NDArray[np.float32], largest: npt.NDArray[np.float32] | np.float32) -> str:
    """Return values between 0 and `largest` as bytes from 0 to 255."""
    scaled = np.nan_to_num(values / np.maximum(largest, np.finfo(np.float32).tiny))
    return base64.b64encode(np.rint(255 * scaled).astype(np.uint8).tobytes()).decode()
