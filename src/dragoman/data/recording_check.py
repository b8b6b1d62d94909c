"""Checking recordings and their texts before training: what is suspicious, how often, and where.

Every recording is read once, block by block, several at the same time; about 1 kB is kept of each. Recordings that are
missing or cannot be read are errors, as in training. `recording_measures` has what is measured of a single one.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from statistics import median

from dragoman.data.corpus_check import (
    MAX_EXAMPLES,
    DataReport,
    Finding,
    Severity,
    has_invisible_characters,
    has_replacement_character,
    is_mojibake,
    printable_excerpt,
)
from dragoman.data.frames import map_in_order
from dragoman.data.recording_measures import RecordingMeasures, measure_recording
from dragoman.data.signal_corpus import SignalCorpus, SignalEntry, open_signal
from dragoman.data.sound_files import import_soundfile, stream_sound
from dragoman.errors import UserError, format_count

_BLOCK_SECONDS = 10.0
_MIN_SECONDS = 0.1
_CLIPPED_SHARE = 0.001
_SILENT_PEAK = 0.001  # of full scale: -60 dB
_QUIET_PEAK = 0.005  # -46 dB; of 16 bits, 8 are left
_STEADY_RANGE = 3.0  # dB; the shortest spoken digits have more than 4, noise 1
_SILENT_SHARE = 0.8
_SILENT_EDGE_SECONDS = 2.0
# Short answers and spelled words make a factor of 3 common, so it must be far from the rest of the corpus, too.
_UNUSUAL_FACTOR, _UNUSUAL_DEVIATIONS = 3.0, 4.0
_DEVIATIONS_PER_MAD = 1.4826  # of a normal distribution
_MIN_CAPITALS = 3  # letters; "OK" and "I" do not tell how a corpus is written
_RARE_FROM_CHARACTERS = 1000  # of a corpus; in a smaller one, most characters are rare
_MAX_ALPHABET = 100  # characters that the report lists


@dataclass(frozen=True)
class TrainingLimits:
    """What a training makes of its recordings."""

    rate: int  # Hz, to which they are converted
    positions_per_second: float  # of the encoder; CTC writes at most one token at each
    max_seconds: float


@dataclass(frozen=True, slots=True)
class _MeasuredRecording:
    """An entry, and what was measured of its recording."""

    entry: SignalEntry
    sound: RecordingMeasures

    @property
    def characters_per_second(self) -> float:
        return len(self.entry.text) / self.sound.seconds


@dataclass(frozen=True)
class _CorpusPart:
    """The training or the validation recordings."""

    name: str
    corpus: SignalCorpus
    entries: Sequence[SignalEntry]
    findings: Sequence[Finding]  # from reading the manifest

    def finding(
        self,
        severity: Severity,
        message: str,
        found: Sequence[_MeasuredRecording | SignalEntry],
        details: Iterable[str] = (),
    ) -> Iterator[Finding]:
        """Yield a finding about some recordings, if there are any; `details` are shown with the examples."""
        if found:
            pairs = zip(found[:MAX_EXAMPLES], chain(details, [""] * MAX_EXAMPLES), strict=False)
            examples = [self._excerpt(item, detail) for item, detail in pairs]
            yield Finding(severity, f"{self.name}: {message}", len(found), tuple(examples))

    def failures(self, message: str, reasons: Sequence[str]) -> Iterator[Finding]:
        """Yield a finding about recordings that cannot be used, if there are any."""
        if reasons:
            yield Finding("error", f"{self.name}: {message}", len(reasons), tuple(reasons[:MAX_EXAMPLES]))

    def note(self, message: str, count: int = 1) -> Finding:
        """Return a note about the part as a whole."""
        return Finding("note", f"{self.name}: {message}", count)

    def _excerpt(self, item: _MeasuredRecording | SignalEntry, detail: str) -> str:
        entry = item.entry if isinstance(item, _MeasuredRecording) else item
        where = self.corpus.describe_entry(entry) + (f", {detail}" if detail else "")
        return f"{where}: {printable_excerpt(entry.text)}"


def check_recordings(
    corpus: SignalCorpus,
    valid: SignalCorpus | None,
    limits: TrainingLimits,
    *,
    threads: int = 1,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> DataReport:
    """Check the training recordings and, if there are any, the validation recordings.

    `on_progress` is called with the number of recordings that have been read, and of all.
    """
    import_soundfile()
    parts = [_list_entries("training", corpus)]
    parts += [_list_entries("validation", valid)] if valid else []
    total = sum(len(part.entries) for part in parts)
    findings: list[Finding] = []
    measured: list[list[_MeasuredRecording]] = []
    done = 0
    for part in parts:
        recordings: list[_MeasuredRecording] = []
        failed: list[str] = []
        for result in map_in_order(partial(_measure, part.corpus), part.entries, threads):
            recordings.extend([result] if isinstance(result, _MeasuredRecording) else [])
            failed.extend([result] if isinstance(result, str) else [])
            done += 1
            on_progress(done, total)
        findings += [*part.findings, *part.failures("recordings that cannot be read", failed)]
        findings += _check_part(part, recordings, limits) if recordings else []
        measured.append(recordings)
    if valid:
        findings += _check_overlap(parts[1], *measured)
    return DataReport.from_findings(findings)


def _list_entries(name: str, corpus: SignalCorpus) -> _CorpusPart:
    # A manifest that cannot be read is itself a finding.
    notices: list[str] = []
    alone: list[str] = []
    try:
        entries = list(corpus.entries(notices.append, alone.append))
        if not entries and not alone:
            raise UserError(f"{corpus}: there are no entries; expected a path and a text on each line.")
    except UserError as error:
        return _CorpusPart(name, corpus, [], [Finding("error", str(error), 1)])
    part = _CorpusPart(name, corpus, entries, [Finding("note", notice, 1) for notice in notices])
    without_text = part.failures("recordings without a text beside them (name.txt for name.wav)", alone)
    empty = part.finding(
        "warning",
        "empty texts; their recordings are not used for training",
        [entry for entry in entries if not entry.text],
    )
    return _CorpusPart(name, corpus, entries, [*part.findings, *without_text, *empty])


def _measure(corpus: SignalCorpus, entry: SignalEntry) -> _MeasuredRecording | str:
    """Return the measures of a recording, or why it cannot be read."""
    label = corpus.label(entry)
    try:
        with open_signal(entry.path, label) as file:
            return _MeasuredRecording(entry, measure_recording(stream_sound(file, label, _BLOCK_SECONDS)))
    except UserError as error:
        return str(error)


def _check_part(part: _CorpusPart, recordings: list[_MeasuredRecording], limits: TrainingLimits) -> Iterator[Finding]:
    yield from _summarise(part, recordings)
    yield from _check_levels(part, recordings)
    yield from _check_rates(part, recordings, limits.rate)
    yield from _check_channels(part, recordings)
    yield from _check_lengths(part, recordings, limits)
    yield from _check_duplicates(part, recordings)
    yield from _check_texts(part)
    yield from _check_capitals(part)


# What the corpus is


def _summarise(part: _CorpusPart, recordings: list[_MeasuredRecording]) -> Iterator[Finding]:
    seconds = sorted(recording.sound.seconds for recording in recordings)
    number, total = len(recordings), sum(seconds)
    yield part.note(
        f"{format_count(number, 'recording')} in {part.corpus}, {_format_total(total)}{_format_rate(recordings)}: "
        f"shortest {seconds[0]:,.2f} s, median {median(seconds):,.2f} s, longest {seconds[-1]:,.2f} s",
        number,
    )
    speakers = Counter(entry.speaker for entry in part.entries if entry.speaker)
    if speakers:
        named = sum(speakers.values())
        missing = f"; {len(part.entries) - named:,} recordings without one" if named < len(part.entries) else ""
        yield part.note(f"{format_count(len(speakers), 'speaker')}{missing}", len(speakers))
    alphabet = sorted(Counter(chain.from_iterable(entry.text for entry in part.entries)))
    characters = sum(len(entry.text) for entry in part.entries)
    listed = "".join(alphabet[:_MAX_ALPHABET]) + ("…" if len(alphabet) > _MAX_ALPHABET else "")
    yield part.note(
        f"{format_count(characters, 'character')} of text, {len(alphabet):,} different: {listed!r}", characters
    )


def _format_total(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:,.1f} minutes" if seconds < 2 * 3600 else f"{seconds / 3600:,.1f} hours"


def _format_rate(recordings: list[_MeasuredRecording]) -> str:
    rates = {recording.sound.rate for recording in recordings}
    return f" at {rates.pop():,} Hz" if len(rates) == 1 else ""


# Sound


def _check_levels(part: _CorpusPart, recordings: list[_MeasuredRecording]) -> Iterator[Finding]:
    silent = [recording for recording in recordings if recording.sound.peak < _SILENT_PEAK]
    heard = [recording for recording in recordings if recording.sound.peak >= _SILENT_PEAK]
    long = [recording for recording in heard if recording.sound.seconds >= _MIN_SECONDS]
    steady = [recording for recording in long if recording.sound.level_range < _STEADY_RANGE]
    spoken = [recording for recording in long if recording.sound.level_range >= _STEADY_RANGE]
    mostly_silent = [recording for recording in spoken if recording.sound.silent_share > _SILENT_SHARE]
    edges = [recording for recording in spoken if _silent_edge(recording) > _SILENT_EDGE_SECONDS]
    clipped = [recording for recording in heard if recording.sound.clipped_share > _CLIPPED_SHARE]
    quiet = [recording for recording in heard if recording.sound.peak < _QUIET_PEAK]
    yield from part.finding("warning", "silent recordings", silent)
    yield from part.finding(
        "warning", "recordings of one level throughout: noise, hum or a tone without pauses", steady
    )
    yield from part.finding(
        "warning",
        f"recordings that are silent for more than {_SILENT_SHARE:.0%} of their time",
        mostly_silent,
        (f"{recording.sound.silent_share:.0%} of {recording.sound.seconds:,.1f} s" for recording in mostly_silent),
    )
    yield from part.finding(
        "note",
        f"recordings with more than {_SILENT_EDGE_SECONDS:g} s of silence at their beginning or end",
        edges,
        (f"{_silent_edge(recording):,.1f} s of {recording.sound.seconds:,.1f} s" for recording in edges),
    )
    yield from part.finding(
        "warning",
        "clipped recordings: samples stay at full scale",
        clipped,
        (f"{recording.sound.clipped_share:.1%} of the samples" for recording in clipped),
    )
    yield from part.finding(
        "note",
        f"quiet recordings: no sample above {_QUIET_PEAK:.1%} of full scale, so that noise and rounding are loud",
        quiet,
        (f"at most {recording.sound.peak:.2%}" for recording in quiet),
    )


def _silent_edge(recording: _MeasuredRecording) -> float:
    return max(recording.sound.silent_start, recording.sound.silent_end)


def _check_rates(part: _CorpusPart, recordings: list[_MeasuredRecording], rate: int) -> Iterator[Finding]:
    rates = Counter(recording.sound.rate for recording in recordings)
    if len(rates) > 1:
        counts = ", ".join(f"{each:,} Hz ({count:,})" for each, count in rates.most_common())
        yield part.note(f"several sampling rates: {counts}", len(rates))
    low = [recording for recording in recordings if recording.sound.rate < rate]
    highest = max(rates)
    if low and highest < rate:
        yield part.note(
            f"at most {highest:,} Hz, less than the {rate:,} Hz of [audio] rate: there is nothing above "
            f"{highest // 2:,} Hz. --set audio.rate={highest} is enough",
            len(low),
        )
    elif low:
        yield from part.finding(
            "warning",
            f"recordings at less than {rate:,} Hz ([audio] rate) among others: nothing is in their upper bands",
            low,
            (f"{recording.sound.rate:,} Hz" for recording in low),
        )


def _check_channels(part: _CorpusPart, recordings: list[_MeasuredRecording]) -> Iterator[Finding]:
    several = [recording for recording in recordings if recording.sound.channels > 1]
    if len(several) == len(recordings):
        yield part.note("all recordings have several channels, which are mixed to one", len(several))
    else:
        yield from part.finding("note", "recordings with several channels, which are mixed to one", several)


# Lengths


def _check_lengths(
    part: _CorpusPart, recordings: list[_MeasuredRecording], limits: TrainingLimits
) -> Iterator[Finding]:
    short = [recording for recording in recordings if recording.sound.seconds < _MIN_SECONDS]
    long = [recording for recording in recordings if recording.sound.seconds > limits.max_seconds]
    crowded = [recording for recording in recordings if _is_crowded(recording, limits)]
    timed = [recording for recording in recordings if recording.entry.text and not _is_crowded(recording, limits)]
    yield from part.finding("warning", f"recordings shorter than {_MIN_SECONDS} s", short)
    yield from part.finding(
        "warning",
        f"recordings longer than {limits.max_seconds:,.0f} s, which are not used for training ([data] longest)",
        long,
        (f"{recording.sound.seconds:,.0f} s" for recording in long),
    )
    yield from part.finding(
        "warning",
        f"texts with more characters than encoder positions ({limits.positions_per_second:g} per second), which CTC "
        "cannot write",
        crowded,
        map(_format_speed, crowded),
    )
    usual, unusual = _find_unusual_speeds(timed)
    for side, found in (
        ("little", [recording for recording in unusual if recording.characters_per_second < usual]),
        ("much", [recording for recording in unusual if recording.characters_per_second > usual]),
    ):
        message = f"very {side} text for the length of the recording; the median is {usual:.1f} characters per second"
        yield from part.finding("warning", message, found, map(_format_speed, found))


def _is_crowded(recording: _MeasuredRecording, limits: TrainingLimits) -> bool:
    # CTC separates equal neighbours by another position.
    text = recording.entry.text
    needed = len(text) + sum(one == other for one, other in pairwise(text))
    return needed > math.ceil(recording.sound.seconds * limits.positions_per_second)


def _format_speed(recording: _MeasuredRecording) -> str:
    return f"{format_count(len(recording.entry.text), 'character')} in {recording.sound.seconds:,.2f} s"


def _find_unusual_speeds(recordings: list[_MeasuredRecording]) -> tuple[float, list[_MeasuredRecording]]:
    """Return the median of the characters per second, and the recordings that are far from it by their logarithm."""
    if not recordings:
        return 0.0, []
    speeds = [math.log(recording.characters_per_second) for recording in recordings]
    middle = median(speeds)
    deviation = _DEVIATIONS_PER_MAD * median(abs(speed - middle) for speed in speeds)
    bound = max(math.log(_UNUSUAL_FACTOR), _UNUSUAL_DEVIATIONS * deviation)
    pairs = zip(recordings, speeds, strict=True)
    return math.exp(middle), [recording for recording, speed in pairs if abs(speed - middle) > bound]


# Duplicates


def _check_duplicates(part: _CorpusPart, recordings: list[_MeasuredRecording]) -> Iterator[Finding]:
    first: dict[bytes, _MeasuredRecording] = {}
    repeated = [
        recording
        for recording in recordings
        if recording.sound.peak >= _SILENT_PEAK and first.setdefault(recording.sound.digest, recording) is not recording
    ]
    originals = [first[recording.sound.digest] for recording in repeated]
    pairs = list(zip(repeated, originals, strict=True))
    for message, found in (
        (
            "recordings with the sound of another one, and another text",
            [pair for pair in pairs if _texts_differ(*pair)],
        ),
        ("recordings with the sound and the text of another one", [pair for pair in pairs if not _texts_differ(*pair)]),
    ):
        details = (f"as {part.corpus.describe_entry(original.entry)}" for _, original in found)
        yield from part.finding("warning", message, [recording for recording, _ in found], details)
    texts = Counter(entry.text for entry in part.entries if entry.text)
    (text, count), *others = texts.most_common() or [("", 0)]
    if count > 1:
        kinds, most = (f"{len(texts):,} different texts", "the most frequent") if others else ("1 text", "it")
        yield part.note(
            f"{kinds} for {format_count(len(part.entries), 'recording')}; {most} occurs {count:,} times: "
            f"{printable_excerpt(text)}",
            len(texts),
        )


def _texts_differ(one: _MeasuredRecording, other: _MeasuredRecording) -> bool:
    return one.entry.text != other.entry.text


def _check_overlap(
    valid: _CorpusPart, training: list[_MeasuredRecording], validation: list[_MeasuredRecording]
) -> Iterator[Finding]:
    digests = {recording.sound.digest for recording in training if recording.sound.peak >= _SILENT_PEAK}
    speakers = {recording.entry.speaker for recording in training} - {None}
    texts = {recording.entry.text for recording in training}
    alphabet = set(chain.from_iterable(texts))
    new = [recording for recording in validation if not alphabet.issuperset(recording.entry.text)]
    shared = {recording.entry.speaker for recording in validation} & speakers
    yield from valid.finding(
        "warning",
        "recordings that are also in the training recordings, so scores will be too high",
        [recording for recording in validation if recording.sound.digest in digests],
    )
    if shared:
        names = ", ".join(sorted(map(str, shared))[:MAX_EXAMPLES]) + (", …" if len(shared) > MAX_EXAMPLES else "")
        yield valid.note(
            f"{format_count(len(shared), 'speaker')} of the training recordings ({names}), so scores do not hold for "
            "other voices",
            len(shared),
        )
    known = sum(recording.entry.text in texts for recording in validation)
    if known:
        yield valid.note(f"{known:,} of {len(validation):,} texts are also those of training recordings", known)
    yield from valid.finding(
        "warning",
        "texts with characters that no training text has, which cannot be written",
        new,
        ("".join(sorted(set(recording.entry.text) - alphabet)) for recording in new),
    )


# Texts


def _check_texts(part: _CorpusPart) -> Iterator[Finding]:
    for severity, message, applies in _TEXT_TESTS:
        yield from part.finding(severity, message, [entry for entry in part.entries if applies(entry.text)])
    counts = Counter(chain.from_iterable(entry.text for entry in part.entries))
    if part.name == "training" and counts.total() >= _RARE_FROM_CHARACTERS:
        rare = {character for character, count in counts.items() if count == 1}
        found = [entry for entry in part.entries if not rare.isdisjoint(entry.text)]
        details = ("".join(sorted(rare.intersection(entry.text))) for entry in found)
        yield from part.finding("note", "texts with a character that occurs once in the corpus", found, details)


def _check_capitals(part: _CorpusPart) -> Iterator[Finding]:
    capitals = [entry for entry in part.entries if entry.text.isupper()]
    if 2 * len(capitals) > len(part.entries):
        message = "texts in lower case, while most are in capitals"
        found = [entry for entry in part.entries if any(map(str.islower, entry.text))]
    else:
        message = "texts in capitals, while most are not"
        found = [entry for entry in capitals if sum(map(str.isalpha, entry.text)) >= _MIN_CAPITALS]
    yield from part.finding("note", message, found)


_TEXT_TESTS: tuple[tuple[Severity, str, Callable[[str], bool]], ...] = (
    ("warning", "looks like UTF-8 decoded as Windows-1252 (\u00c3\u00a9 for é)", is_mojibake),
    ("warning", "replacement characters (U+FFFD) from a failed conversion", has_replacement_character),
    ("note", "control or invisible characters", has_invisible_characters),
    (
        "note",
        "texts with digits; what is spoken differently (21 as twenty-one) is learned better in words",
        lambda text: any(map(str.isdigit, text)),
    ),
)
