"""Sound files to samples.

Files are decoded by libsndfile, through the optional package soundfile. It corrects what it can without a word (a
truncated WAV or OGG file is simply shorter), so this module checks the lengths that headers promise by itself.
"""

import codecs
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dragoman.data.file_kinds import OPENING_BYTES, describe_binary
from dragoman.errors import UserError, did_you_mean_path, format_count

Samples = npt.NDArray[np.float32]  # mono, about -1 to 1
SoundSource = str | PathLike[str] | IO[bytes]  # a path, or an open binary file, which is read from its start


_EXPECTED = "expected a sound file: WAV, FLAC, MP3 or OGG"
_CONVERT = "convert it to WAV or FLAC, for example with ffmpeg"
_GIVE_ANOTHER = "Give another file, or unpack or convert this one first."
_COPY_AGAIN = "Copy or download it again."
_MIN_RATE, _MAX_RATE = 1000, 768_000
_MAX_CHANNELS = 64
_MAX_AMPLITUDE = 2.0**31  # of float files with the range of integers; the power of more may overflow
_CHUNK_VALUES = 1 << 18  # decoded at a time

_OTHER_KINDS = {
    (0, b"\x1f\x8b"): "a gzip archive",
    (0, b"FORM"): "an AIFF file",
    (0, b"caff"): "a CAF file",
    (0, b".snd"): "an AU file",
    (0, b"riff"): "a Wave64 file",
    (0, b"NIST_1A"): "a NIST SPHERE file",
    (0, b"#!AMR"): "an AMR file",
    (0, b"MThd"): "a MIDI file",
    (0, b"\x30\x26\xb2\x75"): "a WMA or WMV file",
    (0, b"\x1a\x45\xdf\xa3"): "a WebM or Matroska file",
    (0, b"\xff\xf1"): "an AAC file",
    (0, b"\xff\xf9"): "an AAC file",
    (4, b"ftyp"): "an MP4 or M4A file",
    (8, b"AVI "): "an AVI file",
}

# What ffmpeg, and SoX and eSpeak, write as the size of a WAV file if they cannot go back to fill it in.
_UNKNOWN_WAV_SIZES = {0xFFFFFFFF, 0x7FFFF000}
_MAX_WAV_CHUNKS = 1000  # before the samples
_UNKNOWN_FRAMES = (1 << 63) - 1  # of a FLAC file without a length, as libsndfile reports it
_OGG_PAGE_BYTES = 27 + 255 + 255 * 255  # at most
_MP3_LENGTH = re.compile(rb"(?:Xing|Info)\0\0\0[\x01\x03\x05\x07\x09\x0b\x0d\x0f]|VBRI")  # in the first frame
_MP3_LENGTH_BYTES = 64
_MP3_UNREAD_SECONDS = 0.2  # that gapless playback may cut off: two frames at 8 kHz take 0.14 s


def read_sound(file: SoundSource, name: str, *, max_seconds: float | None = None) -> tuple[Samples, int]:
    """Return the samples of a sound file, mixed to mono, and its sampling rate; `name` is what errors call it."""
    with _open_sound(file, name) as sound:
        seconds = sound.frames / sound.rate
        if max_seconds is not None and seconds > max_seconds:
            raise UserError(f"{name} is {seconds:,.2f} s long; expected at most {max_seconds:,.2f} s. Split it first.")
        return np.concatenate(list(sound.mono_chunks())), sound.rate


def sound_seconds(file: SoundSource, name: str) -> float:
    """Return the length of a sound file by its header; an estimate if the header of an MP3 file has none."""
    with _open_sound(file, name) as sound:
        return sound.frames / sound.rate


@dataclass(frozen=True)
class SoundStream:
    """The samples of a sound file, mixed to mono, in blocks; each iteration reads the file again from its start."""

    file: SoundSource
    name: str
    rate: int
    channels: int  # in the file
    block_frames: int  # in every block except the last, which may have fewer

    def __iter__(self) -> Iterator[Samples]:
        begun: list[Samples] = []
        missing = self.block_frames
        with _open_sound(self.file, self.name) as sound:
            for chunk in sound.mono_chunks():
                while len(chunk) >= missing:
                    yield np.concatenate([*begun, chunk[:missing]])
                    begun, chunk, missing = [], chunk[missing:], self.block_frames
                if len(chunk):
                    begun.append(chunk)
                    missing -= len(chunk)
        if begun:
            yield np.concatenate(begun)


def stream_sound(file: SoundSource, name: str, block_seconds: float) -> SoundStream:
    """Return the samples of a sound file in blocks, in bounded memory; what its header shows is checked at once."""
    with _open_sound(file, name) as sound:
        return SoundStream(file, name, sound.rate, sound.channels, max(1, round(block_seconds * sound.rate)))


# Opening and checking files


@contextmanager
def _open_sound(file: SoundSource, name: str) -> Iterator["_OpenSound"]:
    soundfile = import_soundfile()
    with _open_binary(file, name) as opened:
        stream = _CallbackFile(opened, name)
        formats = _check_opening(stream)
        with _report_undecodable(stream, soundfile, f"It is truncated, damaged or of an unsupported kind; {_CONVERT}."):
            decoder = soundfile.SoundFile(stream)
        with decoder:
            if decoder.format not in formats:
                raise UserError(
                    f"{name} is {decoder.format_info} after an ID3 tag, which is not supported; {_CONVERT}."
                )
            yield _OpenSound(soundfile, decoder, stream)


def import_soundfile() -> Any:
    """Return the package soundfile, or raise an error that says how to install it."""
    try:
        import soundfile
    except ImportError:
        raise UserError('soundfile is not installed; install it with: pip install "dragoman[audio]"') from None
    except OSError as error:
        raise UserError(f"soundfile cannot be imported ({error}); install libsndfile.") from None
    return soundfile


@contextmanager
def _open_binary(file: SoundSource, name: str) -> Iterator[IO[bytes]]:
    if not isinstance(file, str | PathLike):
        yield file
        return
    path = Path(file)
    if "\0" in str(path):
        raise UserError(f"{name!r}: a file name cannot contain NUL characters.")
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        raise UserError(f"{name}: no such file.{did_you_mean_path(path)}") from None
    except IsADirectoryError:
        raise UserError(f"{name}: is a directory; {_EXPECTED}.") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error}).") from None
    with opened:
        yield opened


class _CallbackFile:
    # What libsndfile reads through callbacks. An exception in a callback would be printed and then lost, so it is kept
    # until libsndfile returns. Seeking is postponed until the next read, because a member of a zip archive seeks by
    # unpacking. There is no attribute `name`: soundfile would take the format from its suffix.

    def __init__(self, file: IO[bytes], label: str) -> None:
        if not file.seekable():
            raise UserError(f"{label}: sound cannot be read from a pipe; save it to a file first.")
        self.file = file
        self.label = label
        self.position = 0
        self.error: BaseException | None = None
        with _report_unreadable(label):
            file.seek(0, io.SEEK_END)
            self.size = file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        self.position = max(0, origin + offset)
        return self.position

    def tell(self) -> int:
        return self.position

    def read(self, count: int) -> bytes:
        try:
            data = self.peek(self.position, count)
        except BaseException as error:
            self.error = self.error or error
            return b""
        self.position += len(data)
        return data

    def peek(self, position: int, count: int) -> bytes:
        # Returns bytes without moving the position that libsndfile knows.
        with _report_unreadable(self.label):
            self.file.seek(position)
            return self.file.read(count)


@contextmanager
def _report_unreadable(label: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{label}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None


@contextmanager
def _report_undecodable(stream: _CallbackFile, soundfile: Any, advice: str) -> Iterator[None]:
    undecodable: BaseException | None = None
    try:
        yield
    except soundfile.LibsndfileError as error:
        reason = error.error_string.removeprefix("Error : ").rstrip(".")
        # What libsndfile says of an MP3 file that ends in its first frame would be misunderstood.
        reason = "" if reason.startswith("File does not exist") else f" ({reason})"
        undecodable = UserError(f"{stream.label} cannot be decoded{reason}. {advice}")
    if failure := stream.error or undecodable:
        raise failure


class _OpenSound:
    """A sound file whose header is plausible, ready to be read once."""

    def __init__(self, soundfile: Any, decoder: Any, stream: _CallbackFile) -> None:
        self.soundfile = soundfile
        self.decoder = decoder
        self.stream = stream
        self.rate: int = decoder.samplerate
        self.channels: int = decoder.channels
        self.frames: int = decoder.frames  # as the header promises; of an MP3 file without a length, an estimate
        label = stream.label
        _check_rate_and_channels(self.rate, self.channels, label)
        if self.frames == _UNKNOWN_FRAMES:
            raise UserError(f"{label} does not have its length in its header, as if written to a pipe; {_CONVERT}.")
        if self.frames <= 0:
            raise UserError(f"{label} contains no samples. Record or convert it again, or remove it.")

    def mono_chunks(self) -> Iterator[Samples]:
        """Yield the samples in chunks of bounded size; raise an error if they are not what the header promises."""
        size = max(1, _CHUNK_VALUES // self.channels)
        done = 0
        advice = f"It is truncated or damaged: its header promises {self._seconds(self.frames)}. {_COPY_AGAIN}"
        while done < self.frames:
            with _report_undecodable(self.stream, self.soundfile, advice):
                chunk = self.decoder.read(size, dtype="float32", always_2d=True)
            if not len(chunk):
                break
            with np.errstate(all="ignore"):
                samples: Samples = chunk.mean(axis=1) if self.channels > 1 else chunk[:, 0]
            self._check_samples(samples, done)
            done += len(samples)
            yield samples
        self._check_end(done)

    def _seconds(self, frames: int) -> str:
        return f"{frames / self.rate:,.2f} s of sound"

    def _check_samples(self, samples: Samples, position: int) -> None:
        within_range = np.abs(samples) <= _MAX_AMPLITUDE  # False for NaN
        if not within_range.all():
            index = int(np.argmin(within_range))
            raise UserError(
                f"{self.stream.label}: sample {position + index:,}, at {(position + index) / self.rate:,.3f} s, is "
                f"{samples[index]:g}; expected about -1 to 1. Record or convert it again, or remove it."
            )

    def _check_end(self, done: int) -> None:
        has_length = True
        if self.decoder.format == "MP3":
            start = _find_mp3_frame(self.stream)
            has_length = _MP3_LENGTH.search(self.stream.peek(start, _MP3_LENGTH_BYTES)) is not None
            self._check_end_of_mp3(start, done)
        if done < self.frames and (has_length or not done):
            raise UserError(
                f"{self.stream.label} is truncated: its header promises {self._seconds(self.frames)}, "
                f"but it ends after {done / self.rate:,.2f} s. {_COPY_AGAIN}"
            )

    def _check_end_of_mp3(self, start: int, done: int) -> None:
        # libsndfile stops after the length in the header, or after its estimate from the first frame if there is none.
        end = self.stream.position
        unread_seconds = (self.stream.size - end) / max(1, end - start) * done / self.rate
        if unread_seconds > _MP3_UNREAD_SECONDS and _is_mp3_frame(self.stream.peek(end, 4)):
            raise UserError(
                f"{self.stream.label} goes on after {self._seconds(done)}, the length in its header or by its first "
                f"bit rate; {_CONVERT}."
            )


def _check_rate_and_channels(rate: int, channels: int, label: str) -> None:
    if not _MIN_RATE <= rate <= _MAX_RATE:
        raise UserError(
            f"{label} has a sampling rate of {rate:,} Hz; expected {_MIN_RATE:,} to {_MAX_RATE:,} Hz. "
            "Its header may be damaged; convert or copy it again."
        )
    if not 1 <= channels <= _MAX_CHANNELS:
        raise UserError(
            f"{label} has {format_count(channels, 'channel')}; expected 1 to {_MAX_CHANNELS}. "
            "Mix it to mono first, for example with ffmpeg."
        )


def _check_opening(stream: _CallbackFile) -> set[str]:
    # Returns libsndfile's names of the formats that may begin so.
    opening = stream.peek(0, OPENING_BYTES)
    if not opening:
        raise UserError(f"{stream.label}: the file is empty; {_EXPECTED}. {_COPY_AGAIN}")
    if opening.startswith((b"RIFF", b"RIFX", b"RF64")) and opening.startswith(b"WAVE", 8):
        _check_wav(stream, ">" if opening.startswith(b"RIFX") else "<")
        return {"WAV", "WAVEX", "RF64"}
    if opening.startswith(b"OggS"):
        _check_ogg(stream)
        return {"OGG"}
    if opening.startswith((b"fLaC", b"ID3")) or _is_mp3_frame(opening):
        return {"FLAC", "MP3"}
    kind = _describe_kind(opening, stream.label)
    raise UserError(f"{stream.label} is {kind}; {_EXPECTED}. {_advise(kind, stream.label)}")


def _advise(kind: str, label: str) -> str:
    if "ZIP" in kind and label.lower().endswith(".zip"):
        return f"Name a recording in it: {label.rpartition(': ')[2]}/NAME.wav."
    return _GIVE_ANOTHER


def _describe_kind(opening: bytes, label: str) -> str:
    sounds = (kind for (offset, magic), kind in _OTHER_KINDS.items() if opening.startswith(magic, offset))
    if kind := next(sounds, None):
        return kind
    if described := describe_binary(opening, Path(label.replace("\0", ""))):
        return described.partition(";")[0]
    try:
        codecs.utf_8_decode(opening, "strict", False)
    except UnicodeDecodeError:
        return "of an unknown kind"
    return "of an unknown kind" if b"\0" in opening else "a text file"


def _check_wav(stream: _CallbackFile, byte_order: str) -> None:
    # libsndfile takes a data chunk that is too long for the file to end with the file.
    position, size64 = 12, None
    for _ in range(_MAX_WAV_CHUNKS):
        header = stream.peek(position, 24)
        if len(header) < 8:
            return  # libsndfile reports that there are no data
        tag, size = struct.unpack_from(f"{byte_order}4sI", header)
        if tag == b"data":
            break
        if tag == b"fmt " and len(header) >= 16:
            channels, rate = struct.unpack_from(f"{byte_order}HI", header, 10)
            _check_rate_and_channels(rate, channels, stream.label)
        if tag == b"ds64" and len(header) == 24:
            (size64,) = struct.unpack_from("<Q", header, 16)
        position += 8 + size + size % 2
    else:
        return
    if size64 is not None and size == 0xFFFFFFFF:
        size = size64
    elif size in _UNKNOWN_WAV_SIZES:
        return
    available = max(0, stream.size - position - 8)
    if size > available:
        raise UserError(
            f"{stream.label} is truncated: its header promises {size:,} bytes of samples, but {available:,} follow. "
            f"{_COPY_AGAIN}"
        )


def _check_ogg(stream: _CallbackFile) -> None:
    # libsndfile ends with the last whole page, and reads the first of several streams.
    tail = stream.peek(max(0, stream.size - _OGG_PAGE_BYTES), _OGG_PAGE_BYTES)
    page = tail[max(0, tail.rfind(b"OggS\0")) :]
    is_marked_last = len(page) > 26 and page[5] & 4 != 0
    if not is_marked_last or len(page) < 27 + page[26] + sum(page[27 : 27 + page[26]]):
        raise UserError(
            f"{stream.label} is truncated: its last page is incomplete or not marked as the last. {_COPY_AGAIN} "
            f"If the rest is lost, {_CONVERT}."
        )
    if page[14:18] != stream.peek(14, 4):
        raise UserError(f"{stream.label} contains several streams; expected one. Split it, or {_CONVERT}.")


def _is_mp3_frame(opening: bytes) -> bool:
    # 11 bits of synchronisation, a version, layer III or II, a bit rate and a sampling rate
    if len(opening) < 4 or opening[0] != 0xFF or opening[1] & 0xE0 != 0xE0:
        return False
    known_version, layer = opening[1] & 0x18 != 0x08, opening[1] & 0x06
    return known_version and layer in (0x02, 0x04) and opening[2] & 0xF0 != 0xF0 and opening[2] & 0x0C != 0x0C


def _find_mp3_frame(stream: _CallbackFile) -> int:
    # Returns the position after the ID3 tags.
    position = 0
    while len(tag := stream.peek(position, 10)) == 10 and tag.startswith(b"ID3"):
        size = sum(byte << shift for byte, shift in zip(tag[6:], (21, 14, 7, 0), strict=True))
        position += 10 + size + (10 if tag[5] & 0x10 else 0)
    return position
