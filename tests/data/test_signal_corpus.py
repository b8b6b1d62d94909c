"""Recordings with their texts: tables, folders, zip archives, and what is wrong with them."""

import gzip
import hashlib
import io
import os
import re
import struct
import wave
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from dragoman.data.signal_corpus import SignalCorpus, SignalEntry, open_signal
from dragoman.data.split import split_held_out
from dragoman.errors import UserError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"

# Where the directory of a zip archive has these facts about a member, and how.
FLAGS, METHOD, PACKED_SIZE, SIZE, ATTRIBUTES = (8, "<H"), (10, "<H"), (20, "<I"), (24, "<I"), (38, "<I")


def wav(seed: int = 0, frames: int = 80) -> bytes:
    """Return a WAV file of noise."""
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(Random(seed).randbytes(2 * frames))
    return data.getvalue()


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def with_fact(archive: bytes, fact: tuple[int, str], value: int) -> bytes:
    """Return an archive of one member with something else in its directory."""
    offset, kind = fact
    changed = bytearray(archive)
    struct.pack_into(kind, changed, archive.index(b"PK\1\2") + offset, value)
    return bytes(changed)


def read(path: str | Path) -> bytes:
    with open_signal(str(path)) as stream:
        return stream.read()


@pytest.fixture
def table(write):
    """Write a manifest, and the recordings a.wav and b.wav beside it."""

    def written(lines: list[str], name: str = "train.tsv") -> SignalCorpus:
        write("a.wav", wav(1))
        write("b.wav", wav(2))
        return SignalCorpus(write(name, lines))

    return written


@pytest.fixture
def folder(tmp_path):
    """Write a folder of files and return its path."""

    def written(files: dict[str, bytes]) -> Path:
        for name, content in files.items():
            path = tmp_path / "recordings" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return tmp_path / "recordings"

    return written


def error_of(corpus: SignalCorpus) -> str:
    with pytest.raises(UserError) as caught:
        corpus.count_pairs()
    return str(caught.value)


# Tables


def test_a_table_has_a_path_a_text_and_perhaps_a_speaker_on_each_line(table, tmp_path):
    corpus = table(["a.wav\tyes no\tmary\t1.5", "b.wav\tno"])
    assert list(corpus.entries()) == [
        SignalEntry(1, str(tmp_path / "a.wav"), "yes no", "mary", "a.wav"),
        SignalEntry(2, str(tmp_path / "b.wav"), "no", None, "b.wav"),
    ]
    assert list(corpus.pairs()) == [(str(tmp_path / "a.wav"), "yes no"), (str(tmp_path / "b.wav"), "no")]
    assert (corpus.count_pairs(), corpus.notices()) == (2, ())
    assert str(corpus) == str(tmp_path / "train.tsv")


def test_a_third_column_of_seconds_is_not_a_speaker(table):
    assert [entry.speaker for entry in table(["a.wav\tyes\t1.600", "b.wav\tno\t1089"]).entries()] == [None, "1089"]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("path\ttext", "a.wav\tyes no"),
        ("Transcript\tWAV\tspeaker", "yes no\ta.wav\tmary"),
        ("client_id\tpath\tsentence\tup_votes", "mary\ta.wav\tyes no\t2"),
    ],
)
def test_a_header_says_which_column_is_which(table, tmp_path, header, row):
    corpus = table([header, row])
    (entry,) = corpus.entries()
    assert (entry.line, entry.name, entry.text) == (2, "a.wav", "yes no")
    assert entry.speaker == ("mary" if "mary" in row else None)
    assert [notice.partition(";")[0] for notice in corpus.notices()] == [
        f"{tmp_path / 'train.tsv'}: the first line is a header"
    ]


def test_a_header_without_a_column_of_texts_is_named(table):
    assert error_of(table(["path\tlabel", "a.wav\tyes"])).endswith(
        "train.tsv, line 1: looks like a header without a column of texts; call it text, transcript, sentence or "
        "words, or remove the line."
    )


def test_a_first_text_that_is_the_name_of_a_column_is_a_text(table):
    assert [entry.text for entry in table(["a.wav\ttext", "b.wav\tpath"]).entries()] == ["text", "path"]
    assert [entry.text for entry in table(["b.wav\tpath", "a.wav\ttext"]).entries()] == ["path", "text"]


def test_empty_lines_are_skipped_and_lines_are_counted_with_them(table):
    assert [entry.line for entry in table(["", "a.wav\tyes", "  ", "b.wav\tno", ""]).entries()] == [2, 4]


def test_line_ends_of_windows_and_a_byte_order_mark_are_removed_with_a_notice(write, tmp_path):
    write("a.wav", wav())
    corpus = SignalCorpus(write("train.tsv", b"\xef\xbb\xbfa.wav\tyes\r\n"))
    assert list(corpus.pairs()) == [(str(tmp_path / "a.wav"), "yes")]
    assert len(corpus.notices()) == 2


def test_paths_may_be_absolute_and_have_spaces(write, tmp_path):
    (tmp_path / "else where").mkdir()
    absolute, relative = write("else where/a b.wav", wav(1)), write("c d.wav", wav(2))
    corpus = SignalCorpus(write("train.tsv", [f"{absolute}\tyes", " c d.wav \t no "]))
    assert list(corpus.pairs()) == [(str(absolute), "yes"), (str(relative), "no")]
    assert corpus.count_pairs() == 2


def test_paths_are_relative_to_the_manifest_and_not_to_the_current_folder(table, tmp_path, monkeypatch):
    table(["a.wav\tyes"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    corpus = SignalCorpus(Path("../train.tsv"))
    assert [path for path, _ in corpus.pairs()] == ["../a.wav"]
    assert corpus.count_pairs() == 1


def test_an_entry_without_text_is_a_pair_with_an_empty_side_as_in_other_corpora(table, tmp_path):
    """Training leaves such pairs out; an evaluation may want silence, whose text is empty."""
    corpus = table(["a.wav\tyes", "b.wav\t"])
    assert list(corpus.pairs())[1] == (str(tmp_path / "b.wav"), "")
    assert corpus.count_pairs() == 2
    assert corpus.notices() == (f"{tmp_path / 'train.tsv'}: entries without text: 1, first line 2 (b.wav).",)
    with pytest.raises(UserError, match="1 usable pairs"):
        split_held_out(corpus, 1, seed=1)


def test_a_path_may_occur_again_and_a_notice_counts_that(table):
    corpus = table(["a.wav\tyes", "a.wav\tyes", "b.wav\tno", "a.wav\tja"])
    assert corpus.count_pairs() == 4
    (notice,) = corpus.notices()
    assert notice.endswith("train.tsv: entries with the path of an earlier entry: 2, first line 2 (a.wav).")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.wav", "train.tsv, line 2 has no tab between path and text: 'a.wav'."),
        ("a.wav yes", "train.tsv, line 2 has no tab between path and text: 'a.wav yes'."),
        ("\tyes", r"train.tsv, line 2 has no path: '\tyes'. Fill it in, or remove the line."),
        (
            "c/d.wav\tyes",
            "train.tsv, line 2: c/d.wav does not exist; a path is absolute, or relative to the manifest's folder, or "
            "in a zip archive, as in archive.zip/NAME.",
        ),
        (
            "/nowhere/d.wav\tyes",
            "line 2: /nowhere/d.wav does not exist; a path is absolute, or relative to the manifest's folder, or in a ",
        ),
        (f"{'yes ' * 200}\ta.wav", f"line 2: {'yes ' * 30}… does not exist; a path is absolute, or relative to the "),
        (f"{'yes ' * 99}.zip/b\ta.wav", "… does not exist; a path is absolute, or relative to the "),
        (".\tyes", "train.tsv, line 2: . is a directory; expected a file."),
        ("a\0.wav\tyes", "a file name cannot contain NUL characters."),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number(table, line, message):
    assert message in error_of(table(["a.wav\tyes", line]))


def test_a_row_that_is_shorter_than_its_header_is_named(table):
    message = error_of(table(["path\tspeaker\ttext", "a.wav\tmary"]))
    assert r"line 2 has 2 columns; expected at least 3, as in the header: 'a.wav\tmary'." in message


def test_a_similar_name_is_suggested_for_a_missing_recording(table, tmp_path):
    message = error_of(table(["aa.wav\tyes"]))
    assert "line 1: aa.wav does not exist; a path is absolute" in message
    assert message.endswith(f'Did you mean "{tmp_path / "a.wav"}"?')


@pytest.mark.parametrize("folder", ["", "wavs/"])
def test_an_archive_that_is_there_is_named_for_a_missing_recording(table, write, folder, tmp_path):
    (tmp_path / "wavs").mkdir()
    corpus = table([f"{folder}x.wav\tyes"])
    (tmp_path / f"{folder}all.zip").write_bytes(zip_of({"x.wav": wav()}))
    assert f"or in a zip archive: {folder}all.zip/NAME." in error_of(corpus)
    assert SignalCorpus(write("other.tsv", [f"{folder}all.zip/x.wav\tyes"])).count_pairs() == 1


def test_all_recordings_are_looked_up_before_the_first_is_read(table, tmp_path):
    corpus = table(["train.zip/x.wav\tyes", "c.wav\tno"])
    (tmp_path / "train.zip").write_bytes(zip_of({"x.wav": wav()}).replace(wav()[-9:], bytes(9)))
    assert "line 2: c.wav does not exist" in error_of(corpus)


def test_a_missing_manifest_is_named_with_one_like_it(table, tmp_path):
    table(["a.wav\tyes"])
    message = f'{tmp_path / "trian.tsv"}: no such file. Did you mean "{tmp_path / "train.tsv"}"?'
    assert error_of(SignalCorpus(tmp_path / "trian.tsv")) == message


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("train.wav", wav(), "a sound file"),
        ("train.WAV", b"damaged", "a sound file"),
        ("train.tsv", wav(), "a sound file"),
        ("train", b"fLaC\0\0\0\x22", "a sound file"),
        ("train", b"ID3\4\0", "a sound file"),
        ("train.tif", b"II*\0", "an image"),
        ("train", b"\x89PNG\r\n\x1a\n", "a PNG image"),
        ("train.zip", zip_of({"a.wav": wav()}), "a ZIP archive"),
        ("train.xml", b'<?xml version="1.0"?>\n', "an XML file"),
    ],
)
def test_a_manifest_that_is_something_else_is_called_what_it_is(write, name, content, kind):
    message = f"{name} is {kind}; give a table with path and text on each line, or a folder with pairs such as"
    assert message in error_of(SignalCorpus(write(name, content)))


def test_an_empty_manifest_is_refused(write):
    assert "train.tsv: the file is empty; expected a table with path" in error_of(SignalCorpus(write("train.tsv", b"")))
    for lines in (["", " "], ["path\ttext"]):
        message = "train.tsv: there are no entries; expected a path and a text on each line."
        assert error_of(SignalCorpus(write("train.tsv", lines))).endswith(message)


def test_a_manifest_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "train.tsv")
    assert "train.tsv: is a pipe or a device" in error_of(SignalCorpus(tmp_path / "train.tsv"))


# Folders


def test_a_folder_has_recordings_beside_their_texts_at_any_depth(folder):
    path = folder(
        {
            "b/1.FLAC": b"f", "b/1.txt": b"one\n", "a.b.wav": wav(), "a.b.txt": b" two\r\nlines \n", "c.mp3": b"m",
            "c.txt": b"", ".hidden/x.wav": wav(), "b/._1.FLAC": b"x",
        }
    )  # fmt: skip
    corpus = SignalCorpus(path)
    assert list(corpus.entries()) == [
        SignalEntry(1, str(path / "a.b.wav"), "two lines", None, "a.b.wav"),
        SignalEntry(2, str(path / "b" / "1.FLAC"), "one", None, "b/1.FLAC"),
        SignalEntry(3, str(path / "c.mp3"), "", None, "c.mp3"),
    ]
    assert corpus.count_pairs() == 3
    assert corpus.notices() == (f"{path}: entries without text: 1, first c.mp3.",)


def test_texts_of_no_recording_are_counted(folder):
    corpus = SignalCorpus(folder({"a.wav": wav(), "a.txt": b"yes", "lost.txt": b"no", "readme.txt": b"this"}))
    assert corpus.count_pairs() == 1
    (notice,) = corpus.notices()
    assert notice.endswith("recordings: texts without a recording, which are ignored: 2, first lost.txt.")


def test_recordings_without_texts_are_counted_and_the_first_is_named(folder):
    path = folder({"a.wav": wav(), "a.txt": b"yes", "b/c.wav": wav(), "d.wav": wav()})
    assert error_of(SignalCorpus(path)) == (
        f"{path}: 2 of 3 recordings have no text; the first is {path / 'b' / 'c.wav'}. "
        "Write its text into c.txt beside it."
    )


def test_a_folder_without_recordings_is_refused_and_its_tables_are_named(folder):
    path = folder({"notes.txt": b"yes"})
    assert error_of(SignalCorpus(path)) == (
        f"{path}: there are no recordings; expected a table with path and text on each line, or a folder with pairs "
        "such as name.wav and name.txt."
    )
    path = folder({"dev.tsv": b"a\tb\n", "train.tsv": b"a\tb\n"})
    assert error_of(SignalCorpus(path)).endswith(
        f"name.txt. Did you mean the table {path / 'dev.tsv'} or {path / 'train.tsv'}?"
    )


def test_a_text_that_is_not_utf8_is_named(folder):
    assert "recordings/a.txt: line 1" in error_of(SignalCorpus(folder({"a.wav": wav(), "a.txt": b"\xe4h\n"})))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_listed_is_named(folder):
    path = folder({"a.wav": wav(), "a.txt": b"yes", "b/c.wav": wav()})
    (path / "b").chmod(0)
    message = error_of(SignalCorpus(path))
    (path / "b").chmod(0o700)
    assert message == f"{path / 'b'} cannot be read (Permission denied)."


# Files


def test_a_pipe_a_device_and_an_empty_file_are_refused_as_recordings(table, tmp_path):
    corpus = table(["a.wav\tyes", "pipe.wav\tno"])
    os.mkfifo(tmp_path / "pipe.wav")
    assert error_of(corpus).endswith("train.tsv, line 2: pipe.wav is a pipe; expected a file.")
    with pytest.raises(UserError, match=r"/dev/zero is a device; expected a file\."):
        read("/dev/zero")
    (tmp_path / "empty.wav").touch()
    with pytest.raises(UserError, match=r"empty\.wav is empty; copy or download it again"):
        read(tmp_path / "empty.wav")


@pytest.mark.parametrize("path", ["nothing.wav", "nothing.zip/a.wav", ""])
def test_what_cannot_be_opened_is_named(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"^{path} (does not exist\.|is a directory; expected a file\.)$"):
        read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_recording_without_permission_is_named(table, tmp_path):
    corpus = table(["a.wav\tyes"])
    (tmp_path / "a.wav").chmod(0)
    assert error_of(corpus).endswith("line 1: a.wav cannot be read (Permission denied).")
    with pytest.raises(UserError, match=r"a\.wav cannot be read \(Permission denied\)\."):
        read(tmp_path / "a.wav")


def test_a_name_that_is_not_utf8_works(folder):
    path = folder({})
    path.mkdir()
    for suffix, content in ((b".wav", wav()), (b".txt", b"yes")):
        Path(os.fsdecode(os.fsencode(path) + b"/\xff" + suffix)).write_bytes(content)
    corpus = SignalCorpus(path)
    assert corpus.count_pairs() == 1
    assert [read(path) for path, _ in corpus.pairs()] == [wav()]


# The fingerprint


def test_the_fingerprint_is_that_of_texts_and_content_wherever_they_lie(table, folder, write, tmp_path):
    digests = [hashlib.sha256(wav(seed)).digest() for seed in (1, 2)]
    expected = hashlib.sha256(digests[0] + b"yes\n" + digests[1] + b"no\n").hexdigest()
    files = {"a.wav": wav(1), "a.txt": b"yes", "b.wav": wav(2), "b.txt": b"no"}
    (tmp_path / "zipped").mkdir()
    write("zipped/train.zip", zip_of(files, zipfile.ZIP_DEFLATED))
    corpora = [
        table(["a.wav\tyes", "b.wav\tno\tmary"]),
        SignalCorpus(write("train.tsv.gz", gzip.compress(b"text\tfile\nyes\ta.wav\nno\tb.wav\n"))),
        SignalCorpus(folder(files)),
        SignalCorpus(write("zipped/train.tsv", ["a.wav\tyes", "b.wav\tno"])),
    ]
    assert [corpus.fingerprint() for corpus in corpora] == [expected] * 4


def test_another_text_another_content_or_another_order_has_another_fingerprint(table, tmp_path):
    fingerprints = [table(lines).fingerprint() for lines in (["a.wav\tyes"], ["a.wav\tno"], ["b.wav\tyes"])]
    fingerprints += [table(lines).fingerprint() for lines in (["a.wav\tx", "b.wav\tx"], ["b.wav\tx", "a.wav\tx"])]
    corpus = table(["a.wav\tyes"])
    (tmp_path / "a.wav").write_bytes(wav(3))
    assert len({*fingerprints, corpus.fingerprint()}) == 6


# Archives


def test_a_path_may_lead_into_an_archive(table, write, tmp_path):
    (tmp_path / "zips").mkdir()
    write("zips/more.ZIP", zip_of({"x/c.wav": wav(3), "../d.wav": wav(4)}, zipfile.ZIP_DEFLATED))
    corpus = table(["a.wav\tyes", "zips/more.ZIP/x/c.wav\tno", "zips/more.ZIP/../d.wav\tup"])
    assert corpus.count_pairs() == 3
    assert [read(path) for path, _ in corpus.pairs()] == [wav(1), wav(3), wav(4)]


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz", "train"])
def test_a_file_that_is_missing_is_taken_from_the_archive_with_the_name_of_the_manifest(write, tmp_path, name):
    write("train.zip", zip_of({"a.wav": wav(1), "b.wav": wav(2), "x/c.wav": wav(3)}))
    write("a.wav", wav(4))
    lines = b"a.wav\tyes\nb.wav\tno\n./x/c.wav\tup\n"
    corpus = SignalCorpus(write(name, gzip.compress(lines) if name.endswith(".gz") else lines))
    assert corpus.count_pairs() == 3
    assert [path for path, _ in corpus.pairs()] == [
        str(tmp_path / path) for path in ("a.wav", "train.zip/b.wav", "train.zip/x/c.wav")
    ]
    assert [read(path) for path, _ in corpus.pairs()] == [wav(4), wav(2), wav(3)]


def test_a_recording_that_is_not_in_the_archive_is_named_with_one_like_it(write, tmp_path):
    archive = write("train.zip", zip_of({"recordings/a17.wav": wav()}))
    message = error_of(SignalCorpus(write("train.tsv", ["recordings/a17.wav\tyes", "recording/a17.wav\tno"])))
    assert message == (
        f"{tmp_path / 'train.tsv'}, line 2: recording/a17.wav does not exist; {archive} has no such member. "
        'Did you mean "recordings/a17.wav"?'
    )


def test_an_absolute_path_is_not_looked_up_in_the_archive(write):
    write("train.zip", zip_of({"/a.wav": wav()}))
    assert "line 1: /a.wav does not exist; a path is" in error_of(SignalCorpus(write("train.tsv", ["/a.wav\tyes"])))


def test_names_in_utf8_are_found_even_if_the_archive_does_not_say_that_they_are(write):
    archive = bytearray(zip_of({"ä.wav": wav()}))
    for magic, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        struct.pack_into("<H", archive, archive.index(magic) + offset, 0)
    assert read(write("a.zip", zip_of({"ä.wav": wav()})) / "ä.wav") == wav()
    assert read(write("b.zip", bytes(archive)) / "ä.wav") == wav()


def test_a_member_can_be_read_at_any_position_and_its_archive_is_closed(write):
    archive = write("a.zip", zip_of({"a.wav": wav()}, zipfile.ZIP_DEFLATED))
    with open_signal(f"{archive}/a.wav") as stream:
        archive.unlink()
        stream.seek(-5, os.SEEK_END)
        assert stream.read() == wav()[-5:]
        stream.seek(0)
        with wave.open(stream) as sound:
            assert sound.getnframes() == 80


def test_the_directory_of_an_archive_is_read_once_until_the_archive_changes(write, monkeypatch):
    opened = []
    original = zipfile.ZipFile.__init__
    monkeypatch.setattr(
        zipfile.ZipFile, "__init__", lambda self, *options: (opened.append(options), original(self, *options))[1]
    )
    archive = write("a.zip", zip_of({f"{number}.wav": wav(number) for number in range(9)}))
    opened.clear()
    assert [read(archive / f"{number}.wav") for number in range(9)] == [wav(number) for number in range(9)]
    assert len(opened) == 1
    archive.write_bytes(zip_of({"0.wav": wav(10, frames=90)}))
    assert read(archive / "0.wav") == wav(10, frames=90)


def test_threads_can_read_one_archive_at_the_same_time(write):
    archive = write(
        "a.zip", zip_of({f"{number}.wav": wav(number, frames=20000) for number in range(8)}, zipfile.ZIP_DEFLATED)
    )
    with ThreadPoolExecutor(4) as pool:
        contents = list(pool.map(read, [archive / f"{number % 8}.wav" for number in range(64)]))
    assert contents == [wav(number, frames=20000) for number in range(8)] * 8


NOISE = {"a.wav": wav()}
BAD_ARCHIVES = {
    "larger than 2 GiB": (
        with_fact(zip_of(NOISE), SIZE, (2 << 30) + 1),
        "line 1: a.wav has 2,147,483,649 bytes unpacked; at most 2,147,483,648 are allowed.",
    ),
    "compressed too well": (
        with_fact(zip_of(NOISE), SIZE, 1000 * len(wav()) + 1),
        "line 1: a.wav has 204,001 bytes unpacked and 204 packed; a ratio above 1,000 is not allowed.",
    ),
    "larger than it claims": (
        with_fact(zip_of({"a.wav": wav(frames=9000)}, zipfile.ZIP_DEFLATED), SIZE, 100),
        "line 1: a.wav cannot be read; {archive} is a damaged zip archive (Bad CRC-32 for file 'a.wav').",
    ),
    "smaller than it claims": (
        with_fact(with_fact(zip_of(NOISE), SIZE, 5000), PACKED_SIZE, 5000),
        "line 1: a.wav cannot be read; {archive} is a damaged zip archive (it ends too early).",
    ),
    "damaged inside": (
        zip_of(NOISE, zipfile.ZIP_DEFLATED).replace(b"a.wav", b"a.wav" + b"\xff" * 9, 1)[:-9],
        "{archive} is a damaged zip archive",
    ),
    "no deflated data": (
        with_fact(zip_of({"a.wav": b"\xff" * 99}), METHOD, zipfile.ZIP_DEFLATED),
        "line 1: a.wav cannot be read; {archive} is a damaged zip archive (Error -3 while decompressing data",
    ),
    "cut off": (zip_of(NOISE)[:-9], "{archive} is a damaged zip archive (File is not a zip file)."),
    "no archive": (b"sound", "{archive} is a damaged zip archive (File is not a zip file). Copy or download it again."),
    "encrypted": (with_fact(zip_of(NOISE), FLAGS, 1), "line 1: a.wav is encrypted; zip it again without a password."),
    "bzip2": (
        zip_of({"a.wav": bytes(99)}, zipfile.ZIP_BZIP2),
        "line 1: a.wav is compressed by method 12; zip it again with deflate (method 8), or store it.",
    ),
    "a link": (with_fact(zip_of(NOISE), ATTRIBUTES, 0o120777 << 16), "line 1: a.wav is a symbolic link; expected a f"),
    "a directory": (zip_of({"a.wav/": b""}), "line 1: a.wav is a directory; expected a file."),
    "an empty member": (zip_of({"a.wav": b""}), "line 1: a.wav is empty; copy or download it again, or remove the"),
}


@pytest.mark.parametrize("kind", BAD_ARCHIVES)
def test_a_bad_archive_or_member_is_refused_by_name(write, kind):
    content, message = BAD_ARCHIVES[kind]
    archive = write("train.zip", content)
    assert message.format(archive=archive) in error_of(SignalCorpus(write("train.tsv", ["a.wav\tyes"])))
    with pytest.raises(UserError, match=re.escape(str(archive))):
        read(archive / "a.wav")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_changed_bytes_is_refused_or_gives_what_was_put_in(write):
    members = {"ä.wav": wav(1), "b.wav": wav(2)}
    chance, content = Random(1), zip_of(members, zipfile.ZIP_DEFLATED)
    refused = 0
    for _ in range(200):
        changed = bytearray(content)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.choice([0, 255, chance.randrange(256)])
        archive = write("a.zip", bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])]))
        for name, expected in members.items():
            try:
                assert read(archive / name) == expected
            except UserError as error:
                assert "a.zip" in str(error)
                refused += 1
    assert 100 < refused < 400


# Data sets


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason=f"no data sets in {SHARED}")
@pytest.mark.parametrize(
    ("name", "entries", "speakers"),
    [
        ("an4/train", 848, 66),
        ("an4/dev", 100, 8),
        ("fsdd/train", 2700, 6),
        ("yesno/train", 41, 0),
        ("prompts/train", 418, 0),
        ("prompts/dev", 51, 0),
    ],
)
def test_all_recordings_of_the_data_sets_are_found(name, entries, speakers):
    corpus = SignalCorpus(SHARED / f"{name}.tsv")
    assert (corpus.count_pairs(), corpus.notices()) == (entries, ())
    assert len({entry.speaker for entry in corpus.entries() if entry.speaker}) == speakers
    path, text = next(corpus.pairs())
    assert text
    assert read(path)[:4] in (b"fLaC", b"RIFF")
