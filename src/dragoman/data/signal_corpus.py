"""Signal files (recordings; later images of text) with their texts: a table of paths, a folder of pairs, zip archives.

A manifest is tab-separated text with a path and a text on each line, or a folder with `name.wav` beside `name.txt`. A
signal is a file, or a member of a zip archive, which is read where it lies: nothing is unpacked to disk. This module
does not decode signals; it finds them, checks them and returns their bytes.
"""

import errno
import hashlib
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from dragoman.data.corpus import CorpusScan, Pair, ScannedCorpus, check_regular_file
from dragoman.data.file_kinds import describe_binary, describe_markup
from dragoman.data.lines import BLOCK_BYTES, OnFileNotice, put_on_one_line, read_lines
from dragoman.data.pair_files import read_opening
from dragoman.errors import UserError, did_you_mean, did_you_mean_path, format_count

_SOUND_SUFFIXES = {".wav", ".flac", ".mp3", ".ogg"}
_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff"}
_SIGNAL_SUFFIXES = _SOUND_SUFFIXES | _IMAGE_SUFFIXES
_SOUND_MAGIC = re.compile(rb"RIFF.{4}WAVE|FORM.{4}AIF|fLaC\0|OggS\0|ID3[\2-\4]|\xff[\xfb\xfa\xf3\xf2]", re.DOTALL)
_EXPECTED = "a table with path and text on each line, or a folder with pairs such as name.wav and name.txt"

_PATH_COLUMNS = ("path", "file", "audio", "recording", "wav")
_TEXT_COLUMNS = ("text", "transcript", "sentence", "words")
_SPEAKER_COLUMNS = ("speaker", "speaker_id", "client_id")
_SECONDS = re.compile(r"\d+\.\d*")  # a third column of durations does not tell speakers
_MESSAGE_LENGTH = 120  # characters of a cell that an error shows

_MAX_MEMBER_BYTES = 2 << 30
_MAX_COMPRESSION_RATIO = 1000
# Of the methods of zipfile, only these unpack in bounded steps: 4 kB of bzip2 can become gigabytes at once.
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED_FLAGS = 0x41
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # magic number, lengths of the name and of the extra field
_LOCAL_MAGIC = b"PK\3\4"
_CACHED_ARCHIVES = 16  # their directories: about 500 bytes per member
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError, OverflowError)

_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_SPECIAL_FILES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",  # in an archive; others are followed
}


@dataclass(frozen=True)
class SignalEntry:
    """A signal and its text."""

    line: int  # of the manifest, or position in the folder, from 1
    path: str  # for `open_signal`
    text: str
    speaker: str | None
    name: str  # the path as the manifest has it, or relative to the folder: the same if the data are moved


@dataclass(frozen=True)
class SignalCorpus(ScannedCorpus):
    """The signals and texts of a manifest; as pairs, each has the path of a signal as its source."""

    manifest: Path  # a table or a folder

    def __str__(self) -> str:
        return str(self.manifest)

    def entries(
        self, on_notice: OnFileNotice | None = None, on_signal_alone: Callable[[str], None] | None = None
    ) -> Iterator[SignalEntry]:
        """Yield every entry; `scan` and `open_signal` check that its signal is there.

        `on_signal_alone` is called with the path of each signal of a folder that has no text, which is an error
        without it.
        """
        if self._is_folder:
            return _read_folder(self.manifest, on_notice, on_signal_alone)
        return _read_table(self.manifest, on_notice)

    def pairs(self) -> Iterator[Pair]:
        """Yield the path and the text of every entry, in order, those with an empty text too."""
        return ((entry.path, entry.text) for entry in self.entries())

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of entries, and the SHA-256 digest of their texts and of the content of their signals."""
        notices: list[str] = []
        entries = list(self.entries(notices.append))
        if not entries:
            raise UserError(f"{self}: there are no entries; expected a path and a text on each line.")
        # All are looked up before the first is read: a missing file is reported at once.
        signals = {entry.path: _find_signal(entry.path, self.label(entry)) for entry in entries}
        contents = {path: _hash_content(signal) for path, signal in signals.items()}
        digest = hashlib.sha256()
        for entry in entries:
            digest.update(contents[entry.path] + f"{entry.text}\n".encode())
        notices += self._describe_unusual_entries(entries)
        return CorpusScan(len(entries), digest.hexdigest(), tuple(dict.fromkeys(notices)))

    @cached_property
    def _is_folder(self) -> bool:
        status = _stat(self.manifest, str(self.manifest))
        return status is not None and stat.S_ISDIR(status.st_mode)

    def label(self, entry: SignalEntry) -> str:
        """Return where an entry is, for errors."""
        return entry.path if self._is_folder else _cell_label(self.manifest, entry.line, entry.name)

    def describe_entry(self, entry: SignalEntry) -> str:
        """Return where an entry is in its corpus."""
        return entry.name if self._is_folder else f"line {entry.line:,} ({_shorten(entry.name)})"

    def _describe_unusual_entries(self, entries: Sequence[SignalEntry]) -> Iterator[str]:
        first_lines: dict[str, int] = {}
        unusual = {
            "without text": [entry for entry in entries if not entry.text],
            "with the path of an earlier entry": [
                entry for entry in entries if first_lines.setdefault(entry.path, entry.line) != entry.line
            ],
        }
        for kind, found in unusual.items():
            if found:
                yield f"{self}: entries {kind}: {len(found):,}, first {self.describe_entry(found[0])}."


def check_signal(path: str) -> None:
    """Raise a UserError if there is no such file or member of a zip archive, or if it is empty; it is not read."""
    _find_signal(path, path)


@contextmanager
def open_signal(path: str, label: str = "") -> Iterator[BinaryIO]:
    """Open a signal: a file, or, for a path such as "train.zip/a.wav", a member of a zip archive.

    A member is read whole and checked against its CRC before this returns; the archive is closed by then. `label` is
    what errors call it, by default its path.
    """
    signal = _find_signal(path, label or path)
    if signal.member is not None:
        content = io.BytesIO()
        content.writelines(_read_blocks(signal))
        content.seek(0)
        yield content
        return
    try:
        stream = signal.file.open("rb")
    except OSError as error:
        raise _unreadable_error(signal.label, error) from None
    with stream:
        yield stream


# Reading manifests


@dataclass(frozen=True)
class _Columns:
    """Which column of a table is which."""

    path: int = 0
    text: int = 1
    speaker: int | None = 2

    def speaker_of(self, row: Sequence[str]) -> str | None:
        if self.speaker is None or self.speaker >= len(row) or _SECONDS.fullmatch(row[self.speaker]):
            return None
        return row[self.speaker] or None


def _read_table(manifest: Path, on_notice: OnFileNotice | None) -> Iterator[SignalEntry]:
    check_regular_file(manifest)
    _check_is_table(manifest)
    lines = read_lines(manifest, on_notice)
    first = next(lines)
    columns = _read_header(manifest, _split_cells(first), on_notice)
    numbered = enumerate(lines, 2) if columns else enumerate(chain([first], lines), 1)
    columns = columns or _Columns()
    archive = Path(str(manifest).removesuffix(".gz")).with_suffix(".zip")
    beside = archive if _is_regular_file(archive, str(archive)) else None
    for number, line in numbered:
        if line.strip():
            row = _split_cells(line)
            _check_row(row, columns, f"{manifest}, line {number:,}", line)
            name = row[columns.path]
            path = _locate(manifest.parent, name, beside, _cell_label(manifest, number, name))
            yield SignalEntry(number, path, row[columns.text], columns.speaker_of(row), name)


def _check_is_table(manifest: Path) -> None:
    opening = read_opening(manifest)
    suffix = manifest.suffix.lower()
    if not opening:
        raise UserError(f"{manifest}: the file is empty; expected {_EXPECTED}.")
    if suffix in _SOUND_SUFFIXES or _SOUND_MAGIC.match(opening):
        kind = "a sound file"
    elif suffix in _IMAGE_SUFFIXES:
        kind = "an image"
    else:
        kind = (describe_binary(opening, manifest) or describe_markup(opening) or "").partition(";")[0]
    if kind:
        raise UserError(f"{manifest} is {kind}; give {_EXPECTED}.")


def _split_cells(line: str) -> list[str]:
    return [put_on_one_line(cell).strip() for cell in line.split("\t")]


def _read_header(manifest: Path, row: Sequence[str], on_notice: OnFileNotice | None) -> _Columns | None:
    # Returns None if the first line is an entry.
    names = [name.lower() for name in row]
    path, text, speaker = (
        next((index for index, name in enumerate(names) if name in known), None)
        for known in (_PATH_COLUMNS, _TEXT_COLUMNS, _SPEAKER_COLUMNS)
    )
    if path is None or (text is None and path > 0):
        return None
    if text is None:
        raise UserError(
            f"{manifest}, line 1: looks like a header without a column of texts; call it {_list_names(_TEXT_COLUMNS)}, "
            "or remove the line."
        )
    if on_notice:
        on_notice(f'{manifest}: the first line is a header; path is "{row[path]}" and text is "{row[text]}".')
    return _Columns(path, text, speaker)


def _list_names(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _check_row(row: Sequence[str], columns: _Columns, where: str, line: str) -> None:
    if len(row) == 1:
        raise UserError(f"{where} has no tab between path and text: {_shorten(line)!r}.")
    if max(columns.path, columns.text) >= len(row):
        raise UserError(
            f"{where} has {format_count(len(row), 'column')}; expected at least "
            f"{max(columns.path, columns.text) + 1}, as in the header: {_shorten(line)!r}."
        )
    if not row[columns.path]:
        raise UserError(f"{where} has no path: {_shorten(line)!r}. Fill it in, or remove the line.")


def _locate(folder: Path, name: str, archive: Path | None, label: str) -> str:
    # Returns the path of a signal: beside the manifest, absolute, or in the manifest's archive.
    path = folder / name
    if archive is None or _stat(path, label) or _find_archive(path, label):
        return str(path)
    return str(archive / name)  # which is `name` if that is absolute


def _read_folder(
    folder: Path, on_notice: OnFileNotice | None, on_signal_alone: Callable[[str], None] | None
) -> Iterator[SignalEntry]:
    files = sorted(_list_files(folder))
    signals = [file for file in files if file.suffix.lower() in _SIGNAL_SUFFIXES]
    texts = {file for file in files if file.suffix == ".txt"}
    tables = _list_names([str(file) for file in files if file.suffix == ".tsv"])
    hint = f" Did you mean the table {tables}?" if tables else ""
    if not signals:
        raise UserError(f"{folder}: there are no recordings; expected {_EXPECTED}.{hint}")
    alone = [file for file in signals if file.with_suffix(".txt") not in texts]
    if on_signal_alone:
        for file in alone:
            on_signal_alone(str(file))
    elif alone:
        raise UserError(
            f"{folder}: {len(alone):,} of {format_count(len(signals), 'recording')} have no text; the first is "
            f"{alone[0]}. Write its text into {alone[0].with_suffix('.txt').name} beside it.{hint}"
        )
    unused = sorted(texts - {file.with_suffix(".txt") for file in signals})
    if unused and on_notice:
        on_notice(f"{folder}: texts without a recording, which are ignored: {len(unused):,}, first {unused[0].name}.")
    for position, file in enumerate((file for file in signals if file.with_suffix(".txt") in texts), 1):
        name = file.relative_to(folder).as_posix()
        yield SignalEntry(position, str(file), _read_text(file.with_suffix(".txt")), None, name)


def _list_files(folder: Path) -> Iterator[Path]:
    # Hidden files are left out: macOS puts a "._name.wav" beside a "name.wav" on other file systems.
    def fail(error: OSError) -> None:
        raise _unreadable_error(str(error.filename), error)

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if not name.startswith("."))


def _read_text(file: Path) -> str:
    check_regular_file(file)
    status = _stat(file, str(file))
    if status and not status.st_size:
        return ""
    return " ".join(put_on_one_line(line).strip() for line in read_lines(file) if line.strip())


# Finding and reading signals


@dataclass(frozen=True)
class _Signal:
    """A signal that is there: a file, or a member of an archive."""

    file: Path  # the archive, if it is a member
    member: zipfile.ZipInfo | None
    label: str  # in errors


def _find_signal(path: str, label: str) -> _Signal:
    file = Path(path)
    status = _stat(file, label)
    archive = None if status else _find_archive(file, label)
    if archive:
        member = _find_member(archive, file.relative_to(archive).as_posix(), label)
        return _Signal(archive, member, label)
    if status is None:
        expected = "" if label == path else _describe_paths(path, label.rpartition(": ")[2])
        raise UserError(f"{label} does not exist{expected}.{_suggest_file(file)}")
    _check_is_file(status.st_mode, status.st_size, label)
    return _Signal(file, None, label)


def _describe_paths(path: str, name: str) -> str:
    # Returns what the path in a manifest may be; an archive that is there is named as the manifest would.
    folder = next((parent for parent in Path(path).parents if _stat(parent, str(parent))), Path())
    archives = sorted(str(file) for file in folder.glob("*.zip"))
    root = path.removesuffix(name)
    example = f": {archives[0].removeprefix(root)}/NAME" if archives else ", as in archive.zip/NAME"
    return f"; a path is absolute, or relative to the manifest's folder, or in a zip archive{example}"


def _suggest_file(file: Path) -> str:
    return did_you_mean_path(file) if len(str(file)) <= _MESSAGE_LENGTH else ""


def _stat(path: Path, label: str) -> os.stat_result | None:
    # Returns None if the file does not exist.
    try:
        return path.stat()
    except OSError as error:
        if error.errno in _NOT_FOUND:
            return None
        raise _unreadable_error(label, error) from None
    except ValueError:
        raise UserError(f"{label!r}: a file name cannot contain NUL characters.") from None


def _is_regular_file(path: Path, label: str) -> bool:
    status = _stat(path, label)
    return status is not None and stat.S_ISREG(status.st_mode)


def _find_archive(path: Path, label: str) -> Path | None:
    # Returns the archive that a path leads into, if any.
    named = (parent for parent in path.parents if parent.suffix.lower() == ".zip")
    return next((parent for parent in named if _is_regular_file(parent, label)), None)


def _find_member(archive: Path, name: str, label: str) -> zipfile.ZipInfo:
    try:
        status = archive.stat()
        state = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        members = _read_directory(str(archive), state)
    except OSError as error:
        raise _unreadable_error(str(archive), error) from None
    except _ZIP_ERRORS as error:
        raise _damaged_error(archive, error) from None
    # Some programs, that of macOS for one, write names in UTF-8 and do not say so; they are read as code page 437.
    misread = name.encode("utf-8", "surrogateescape").decode("cp437")
    member = members.get(name) or members.get(misread)
    if member is None:
        if f"{name}/" in members:
            _check_is_file(stat.S_IFDIR, 0, label)
        raise UserError(f"{label} does not exist; {archive} has no such member.{_suggest_member(name, members)}")
    _check_is_file(member.external_attr >> 16, member.file_size, label)
    _check_member(member, label)
    return member


@lru_cache(_CACHED_ARCHIVES)
def _read_directory(archive: str, _state: tuple[int, ...]) -> Mapping[str, zipfile.ZipInfo]:
    # What is cached is not an open file, so that threads and child processes can share it.
    with zipfile.ZipFile(archive) as opened:
        return {member.filename: member for member in opened.infolist()}


def _suggest_member(name: str, members: Iterable[str]) -> str:
    return did_you_mean(name, members) if len(name) <= _MESSAGE_LENGTH else ""


def _check_is_file(mode: int, size: int, label: str) -> None:
    kind = _SPECIAL_FILES.get(stat.S_IFMT(mode))
    if kind:
        raise UserError(f"{label} is {kind}; expected a file.")
    if not size:
        raise UserError(f"{label} is empty; copy or download it again, or remove the entry.")


def _check_member(member: zipfile.ZipInfo, label: str) -> None:
    if member.flag_bits & _ENCRYPTED_FLAGS:
        raise UserError(f"{label} is encrypted; zip it again without a password.")
    if member.compress_type not in _ZIP_METHODS:
        method = member.compress_type
        raise UserError(f"{label} is compressed by method {method}; zip it again with deflate (method 8), or store it.")
    if member.file_size > _MAX_MEMBER_BYTES:
        raise UserError(f"{label} has {member.file_size:,} bytes unpacked; at most {_MAX_MEMBER_BYTES:,} are allowed.")
    if member.file_size > _MAX_COMPRESSION_RATIO * member.compress_size:
        raise UserError(
            f"{label} has {member.file_size:,} bytes unpacked and {member.compress_size:,} packed; a ratio above "
            f"{_MAX_COMPRESSION_RATIO:,} is not allowed. Store it without compression if it is meant."
        )


def _read_blocks(signal: _Signal) -> Iterator[bytes]:
    try:
        with signal.file.open("rb") as raw:
            stream = _unpack(raw, signal.member) if signal.member else raw
            while block := stream.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        raise _unreadable_error(signal.label, error) from None
    except _ZIP_ERRORS as error:
        raise _damaged_error(signal.file, error, signal.label) from None


def _unpack(raw: BinaryIO, member: zipfile.ZipInfo) -> zipfile.ZipExtFile:
    # As ZipFile.open does, which needs a ZipFile, which reads the directory. It never returns more bytes than the
    # directory says, and raises BadZipFile at the end if they have another CRC.
    raw.seek(member.header_offset)
    header = raw.read(_LOCAL_HEADER.size).ljust(_LOCAL_HEADER.size)
    magic, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    if magic != _LOCAL_MAGIC:
        raise zipfile.BadZipFile("bad magic number of a member")
    raw.seek(name_length + extra_length, os.SEEK_CUR)
    return zipfile.ZipExtFile(raw, "r", member)


def _hash_content(signal: _Signal) -> bytes:
    digest = hashlib.sha256()
    for block in _read_blocks(signal):
        digest.update(block)
    return digest.digest()


# Wording


def _cell_label(manifest: Path, line: int, name: str) -> str:
    return f"{manifest}, line {line:,}: {_shorten(name)}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]}…"


def _unreadable_error(label: str, error: OSError) -> UserError:
    return UserError(f"{label} cannot be read ({error.strerror or error}).")


def _damaged_error(archive: Path, error: Exception, label: str = "") -> UserError:
    where = f"{label} cannot be read; " if label else ""
    reason = str(error).rstrip(".") or "it ends too early"
    return UserError(f"{where}{archive} is a damaged zip archive ({reason}). Copy or download it again.")
