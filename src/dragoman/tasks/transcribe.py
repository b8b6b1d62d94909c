"""Transcription: from sound to text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, NamedTuple, Self, cast

import numpy as np
import torch

from dragoman.data.arrays import OnLinesDone
from dragoman.data.audio import HOP_SECONDS, Pause, log_mel, normalise, resample
from dragoman.data.corpus import Pair, TextPairs
from dragoman.data.corpus_check import DataReport
from dragoman.data.frames import FrameArrays, FrameMasking, FrameMatrix, FramePairs, cache_frames, pair_frames
from dragoman.data.recording_check import TrainingLimits, check_recordings
from dragoman.data.signal_corpus import SignalCorpus, open_signal
from dragoman.data.silence import split_at_silence
from dragoman.data.sound_files import Samples, read_sound, stream_sound
from dragoman.data.split import SplitPart
from dragoman.decoding.ctc import JointDecoder, align
from dragoman.decoding.hypothesis import Hypothesis
from dragoman.decoding.source import to_source
from dragoman.errors import UserError
from dragoman.evaluation.error_rates import ErrorRates, score_transcripts
from dragoman.model_config import AttentionKind, HeadIndex, TransformerConfig
from dragoman.models.transducer import FRAMES_PER_POSITION, IncrementalDecoder
from dragoman.models.transformer import Transformer
from dragoman.native.model import NativeTransformer
from dragoman.processes import available_cores
from dragoman.recipe import AudioConfig, DataConfig, DecodingConfig, DecodingPrecision, Recipe
from dragoman.tasks.inspection import InspectedSource, InspectionRequest, inspect_model, record_attention
from dragoman.tasks.sequence_model import Prediction, SequenceModel
from dragoman.tasks.task import Example, OnNotice, OnProgress, TransductionTask
from dragoman.text.sentences import SegmentedText
from dragoman.text.tokenizer import Tokenizer
from dragoman.viewer.record import END_PIECE, AttentionRecord, AttentionWeights, DecodingStep

_POSITION_SECONDS = FRAMES_PER_POSITION * HOP_SECONDS
_BLOCK_SECONDS = 2.0  # of a recording that are read at once
_SEGMENTS_TOGETHER = 64  # that are searched together
_FEATURES_VERSION = 2  # of what `_sound_frames` computes, for the cache


class Sound(NamedTuple):
    """A recording in memory."""

    samples: Samples
    rate: int


# The path of a file or of a member of a zip archive (archive.zip/name.wav), an open binary file, or samples.
Recording = str | PathLike[str] | IO[bytes] | Sound


def _sound_frames(
    sound: Sound, config: AudioConfig, bands: int, *, speed: float = 1.0, pause: Pause | None = None
) -> FrameMatrix:
    """Return the normalised log-mel frames of a recording, as it sounds at a speed."""
    samples = resample(sound.samples, sound.rate, round(config.rate / speed), pause=pause)
    frames = normalise(log_mel(samples, config.rate, bands=bands, pause=pause))
    return frames.astype(np.float16).astype(np.float32)  # as training reads them from the cache


def _read_recording(recording: Recording) -> Sound:
    """Return the samples of a recording."""
    if isinstance(recording, Sound):
        return recording
    with _open_recording(recording) as file:
        return Sound(*read_sound(file, _recording_name(recording)))


def _open_recording(recording: str | PathLike[str] | IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    if isinstance(recording, str | PathLike):
        return open_signal(fspath(recording))
    return nullcontext(recording)  # whoever opened it closes it


def _recording_name(recording: Recording) -> str:
    """Return what errors call a recording."""
    return fspath(recording) if isinstance(recording, str | PathLike) else "The recording"


def segment_recording(
    recording: Recording, max_seconds: float, *, pause: Pause | None = None
) -> Iterator[tuple[float, Sound]]:
    """Yield a recording, or its parts between silences if it is longer than `max_seconds`, each with its start."""
    if isinstance(recording, Sound):
        parts = split_at_silence([recording.samples], recording.rate, max_seconds=max_seconds)
        yield from ((start, Sound(samples, recording.rate)) for start, samples in parts)
        return
    with _open_recording(recording) as file:
        sound = stream_sound(file, _recording_name(recording), _BLOCK_SECONDS)
        blocks = _pausing(sound, pause) if pause else sound
        for start, samples in split_at_silence(blocks, sound.rate, max_seconds=max_seconds):
            yield start, Sound(samples, sound.rate)


def _pausing(blocks: Iterable[Samples], pause: Pause) -> Iterator[Samples]:
    for block in blocks:
        pause()
        yield block


@dataclass(frozen=True)
class TimedWord:
    """A word of a transcript, and when it was heard."""

    text: str
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True)
class TranscriptSegment:
    """The transcript of a stretch of a recording between two silences."""

    text: str
    start_seconds: float
    end_seconds: float
    score: float
    words: tuple[TimedWord, ...] = ()  # none if the model has no CTC output


@dataclass(frozen=True)
class HeardSegment:
    """A stretch of a recording as the model reads it."""

    recording: int  # its number among those that are transcribed
    start_seconds: float
    end_seconds: float
    frames: FrameMatrix

    @property
    def positions(self) -> int:
        """The number of positions that an encoder makes of the frames."""
        return -(-len(self.frames) // FRAMES_PER_POSITION)


class Transcriber(SequenceModel):
    """A model of speech: `transcribe` returns the text of a recording, or of each of a list of recordings."""

    def transcribe(
        self, recording: Recording | Sequence[Recording], *, n_best: int = 1, details: bool = False, **options: Any
    ) -> Any:
        """Return the transcript of a recording, or a list of transcripts for a list of recordings.

        A recording is a path, also of a member of a zip archive (`archive.zip/name.wav`), an open binary file, or a
        `Sound` with samples and rate. A long one is cut at silences. With `n_best` above 1 there is a list of
        transcripts, the best first, for each. With `details` each is a `Prediction` with its score. Options: `beam`,
        `length_penalty`, `precision`, `progress`.
        """
        if isinstance(recording, str | Sound) or not isinstance(recording, Sequence):
            return self.transcribe([recording], n_best=n_best, details=details, **options)[0]
        ranked = self.search(recording, n_best=n_best, **options)
        results = [row if details else [prediction.text for prediction in row] for row in ranked]
        return results if n_best > 1 else [row[0] for row in results]

    def transcribe_segments(
        self,
        recording: Recording,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        precision: DecodingPrecision | None = None,
    ) -> Iterator[TranscriptSegment]:
        """Yield the transcript of a recording segment by segment, with times; a long one is not read as a whole."""
        engine = self.build_engine(self.decoding_config(beam, length_penalty, 1, precision))
        for heard in _groups(self.hear([recording]), _SEGMENTS_TOGETHER):
            found = engine.search([segment.frames for segment in heard])
            for segment, (hypothesis, *_) in zip(heard, found, strict=True):
                yield self.to_transcript(segment, hypothesis)

    def to_transcript(self, segment: HeardSegment, hypothesis: Hypothesis) -> TranscriptSegment:
        """Return a hypothesis of a segment as text, with the times of its words."""
        return TranscriptSegment(
            self.target_tokenizer.decode(hypothesis.tokens).strip(),
            segment.start_seconds,
            segment.end_seconds,
            hypothesis.score,
            self._time_words(segment, hypothesis),
        )

    def search(self, texts: Sequence[Any], *, n_best: int = 1, **options: Any) -> list[list[Prediction]]:
        """Return the `n_best` transcripts of each recording, the best first.

        The n-th best of a recording that was cut consists of the n-th best of every segment; its log-probability is
        the sum and its score the mean of theirs.
        """
        for name in ("sampling", "prefix", "shortlist"):
            if options.get(name):
                raise UserError(f"{name} is not supported by a {self.task.noun}.")
        names = ("beam", "length_penalty", "precision")
        given = {name: options.get(name) for name in names}
        engine = self.build_engine(self.decoding_config(n_best=n_best, **given))
        progress: Callable[[int], None] = options.get("progress") or (lambda _count: None)
        rows: list[list[list[Prediction]]] = [[] for _ in texts]
        done = 0
        for heard in _groups(self.hear(texts), _SEGMENTS_TOGETHER):
            found = engine.search(
                [segment.frames for segment in heard], n_best=n_best, exact=bool(options.get("exact"))
            )
            for segment, ranked in zip(heard, found, strict=True):
                rows[segment.recording].append(list(map(self.to_prediction, ranked)))
            progress(heard[-1].recording - done)
            done = heard[-1].recording
        progress(len(texts) - done)
        return [self._join_predictions(row, n_best) for row in rows]

    def inspect(
        self,
        text: Any,
        *,
        target: str | None = None,
        prefix: str = "",
        ablate_heads: Iterable[HeadIndex] = (),
        beam: int | None = None,
        trace: bool = False,
        on_step: Callable[[], None] | None = None,
    ) -> AttentionRecord:
        """Record every attention weight while the model reads a recording and writes its transcript.

        The pieces of the source are the times of the encoder's positions. The options are those of
        `SequenceModel.inspect`.
        """
        return inspect_model(self, InspectionRequest(text, target, prefix, tuple(ablate_heads), beam, trace, on_step))

    def inspected_source(self, text: Any, other: str) -> InspectedSource:
        """Return a recording as the model reads it; raise an error if it is too long."""
        del other
        heard = list(islice(self.hear([text]), 2))
        if len(heard) != 1:
            raise UserError(f"{text} is longer than any recording of the training; inspect a shorter part of it.")
        name = Path(text).name if isinstance(text, str | PathLike) else "recording"
        return self._inspected_segment(heard[0], name)

    def record_segment(self, segment: HeardSegment, tokens: Sequence[int], name: str) -> AttentionRecord:
        """Record every attention weight while the model reads a segment and writes these tokens."""
        return record_attention(self, self.model, self._inspected_segment(segment, name), tuple(tokens))

    def _inspected_segment(self, segment: HeardSegment, name: str) -> InspectedSource:
        frames = segment.frames
        source = to_source(frames[None], np.array([len(frames)]), self.device)
        return InspectedSource(name, frames, source, segment.end_seconds - segment.start_seconds)

    def inspection_record(
        self,
        source: InspectedSource,
        target: tuple[int, ...],
        weights: Mapping[AttentionKind, AttentionWeights],
        steps: tuple[DecodingStep, ...],
    ) -> AttentionRecord:
        """Return the record of a recording, whose pieces are the times of its positions."""
        times = [f"{position * _POSITION_SECONDS:.2f}" for position in range(int(source.batch.positions[0]))]
        starts = np.cumsum([0, *(len(time) + 1 for time in times)]).tolist()
        text, tokenizer = self.target_tokenizer.decode(target), self.target_tokenizer
        return AttentionRecord(
            source_pieces=tuple(times),
            target_pieces=(*tokenizer.spell(target), END_PIECE),
            source_text=" ".join(times),
            target_text=text,
            encoder=weights["encoder"],
            decoder=weights["decoder"],
            cross=weights["cross"],
            title=f"{self.name}: {source.text}",
            source_spans=tuple((start, start + len(time)) for start, time in zip(starts, times, strict=False)),
            target_spans=(*tokenizer.spans(target), (len(text), len(text))),
            steps=steps,
            skin="spectrogram",
            frames=np.asarray(source.item, np.float32),
            seconds=source.seconds,
        )

    def hear(self, recordings: Iterable[Recording], *, pause: Pause | None = None) -> Iterator[HeardSegment]:
        """Yield the segments of recordings as frames; `pause` is called from time to time, and may raise."""
        task = self.task
        assert isinstance(task, TranscriptionTask), f"{task.name} is not transcription"
        longest = self.max_length * _POSITION_SECONDS
        for number, recording in enumerate(recordings):
            for start, sound in segment_recording(recording, longest, pause=pause):
                seconds = len(sound.samples) / sound.rate
                frames = _sound_frames(sound, task.audio, task.frame_width, pause=pause)
                yield HeardSegment(number, start, start + seconds, frames)

    def _join_predictions(self, segments: list[list[Prediction]], n_best: int) -> list[Prediction]:
        """Return the transcripts of a recording from those of its segments."""
        text = SegmentedText(("",) * len(segments), ("", *[" "] * (len(segments) - 1), "") if segments else ("",))
        return self.join_segments(text, segments, n_best)

    @torch.inference_mode()
    def _time_words(self, segment: HeardSegment, hypothesis: Hypothesis) -> tuple[TimedWord, ...]:
        """Return the words of a hypothesis with the times at which CTC hears them."""
        model, tokens = self.model, list(hypothesis.tokens)
        if not (isinstance(model, Transformer) and model.ctc is not None and tokens):
            return ()
        frames = segment.frames[None]
        source = to_source(frames, np.array([frames.shape[1]]), self.device)
        heard = model.ctc_log_probabilities(model.encode(source))[0]
        try:
            spans = align(heard, tokens)
        except ValueError:  # more tokens than positions
            return ()
        words: dict[int, list[tuple[int, int]]] = {}
        texts = [self.target_tokenizer.decode(tokens[: index + 1]) for index in range(len(tokens))]
        for before, text, span in zip(["", *texts], texts, spans, strict=False):
            if text.split() and text.rstrip() != before.rstrip():
                words.setdefault(len(text.split()) - 1, []).append(span)
        return tuple(
            TimedWord(
                word,
                round(segment.start_seconds + _POSITION_SECONDS * words[number][0][0], 3),
                min(segment.end_seconds, round(segment.start_seconds + _POSITION_SECONDS * words[number][-1][1], 3)),
            )
            for number, word in enumerate(texts[-1].split())
            if number in words
        )


def _groups(items: Iterable[HeardSegment], size: int) -> Iterator[list[HeardSegment]]:
    remaining = iter(items)
    while group := list(islice(remaining, size)):
        yield group


def _frame_width(recipe: Recipe) -> int:
    assert isinstance(recipe.model, TransformerConfig), "the task requires a Transformer"
    return recipe.model.frame_width


@dataclass(frozen=True)
class TranscriptionTask(TransductionTask):
    """From recordings to transcripts."""

    audio: AudioConfig = field(default_factory=AudioConfig)
    frame_width: int = 80
    longest: int = 1500  # positions of a recording in training

    name, noun, gerund, validation_metric = "transcribe", "transcriber", "Transcribing", "WER"
    unit = "recording"
    reads_signals = True
    higher_is_better = False
    model_class = "dragoman.tasks.transcribe:Transcriber"
    input_hint = "Choose a recording"
    usage_examples = ("dragoman transcribe {run} recording.wav", "dragoman evaluate {run} --reference MANIFEST")

    def configure(self, recipe: Recipe) -> Self:
        """Return the task with the recipe's settings of sound."""
        audio = recipe.audio or AudioConfig()
        return replace(self, audio=audio, frame_width=_frame_width(recipe), longest=recipe.data.longest)

    @property
    def raw_text_io(self) -> bool:
        """Whether the model reads and writes text: it reads sound."""
        return False

    def open_corpora(self, config: DataConfig) -> tuple[SignalCorpus, SignalCorpus | None]:
        """Open the manifests that the recipe names."""
        if not config.file:
            raise UserError(
                "The recipe has no recordings: set [data] file to a manifest, or to a folder of recordings."
            )
        valid = SignalCorpus(Path(config.valid_file)) if config.valid_file else None
        return SignalCorpus(Path(config.file)), valid

    def report_data(self, corpus: TextPairs, valid: TextPairs | None, on_progress: OnProgress) -> DataReport:
        """Return what is suspicious about recordings and texts; every recording is read."""
        limits = TrainingLimits(
            rate=self.audio.rate,
            positions_per_second=1 / _POSITION_SECONDS,
            max_seconds=self.longest * _POSITION_SECONDS,
        )
        return check_recordings(
            cast(SignalCorpus, corpus), cast("SignalCorpus | None", valid), limits,
            threads=available_cores(), on_progress=on_progress,
        )  # fmt: skip

    def tokenize_corpus(
        self,
        corpus: TextPairs,
        tokenizers: tuple[Tokenizer, Tokenizer],
        longest: int,
        part: SplitPart | None,
        on_progress: OnLinesDone,
        *,
        for_training: bool = False,
    ) -> FramePairs:
        """Return the recordings as frames, for training at each speed and with masks."""
        speeds = self.audio.speeds if for_training else (1.0,)
        versions = [self._cache_frames(corpus, speed, on_progress) for speed in speeds]
        masking = FrameMasking(self.audio.mask_frames, self.audio.mask_bands) if for_training else None
        return pair_frames(
            corpus, versions, tokenizers[1], longest,
            frames_per_position=FRAMES_PER_POSITION, masking=masking, part=part,
        )  # fmt: skip

    def _cache_frames(self, corpus: TextPairs, speed: float, on_progress: OnLinesDone) -> FrameArrays:
        settings = {"features": "log-mel", "version": _FEATURES_VERSION, "rate": self.audio.rate, "speed": speed}

        def read_frames(source: str) -> FrameMatrix:
            return _sound_frames(_read_recording(source), self.audio, self.frame_width, speed=speed)

        return cache_frames(
            corpus, read_frames, settings, self.frame_width, threads=available_cores(), on_signals_done=on_progress
        )

    def find_source(self, name: str, config: DataConfig) -> str:
        """Return the path of a recording by its path or name; only those of the run's own data are found."""
        corpora = [corpus for corpus in reversed(self.open_corpora(config)) if corpus]
        for entry in chain.from_iterable(corpus.entries() for corpus in corpora):
            if name in (entry.path, entry.name):
                return entry.path
        raise UserError(f"{name} is not a recording of {' or '.join(map(str, corpora))}.")

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example[str]]:
        """Make an example of each recording."""
        return [Example(path, (text,)) for path, text in pairs]

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example[str]]:
        """Read a manifest."""
        if source is not None or reference is None:
            raise UserError("Give --reference without --source: a manifest with a recording and its text on each line.")
        corpus = SignalCorpus(Path(reference))
        corpus.count_pairs()
        for notice in corpus.notices():
            on_notice(notice)
        return self.examples_from_pairs(corpus.pairs())

    def constrain(
        self, model: IncrementalDecoder, tokenizers: tuple[Tokenizer, Tokenizer], config: DecodingConfig
    ) -> IncrementalDecoder:
        """Return the model with the probabilities of CTC mixed into its own, if it has a CTC output."""
        del tokenizers
        transformer = model.model if isinstance(model, NativeTransformer) else model
        if not (isinstance(transformer, Transformer) and transformer.ctc is not None and config.ctc_weight):
            return model
        return JointDecoder(model, config.ctc_weight, transformer.ctc_log_probabilities)

    def validation_score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> float:
        """Return the word error rate."""
        return self._error_rates(examples, outputs, intervals=False).rates[0].value

    def score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> ErrorRates:
        """Return word and character error rates with confidence intervals."""
        return self._error_rates(examples, outputs, intervals=True)

    def _error_rates(self, examples: Sequence[Example[str]], outputs: Sequence[str], *, intervals: bool) -> ErrorRates:
        sources, references = [example.source for example in examples], [example.references for example in examples]
        return score_transcripts(sources, outputs, references, intervals=intervals)
