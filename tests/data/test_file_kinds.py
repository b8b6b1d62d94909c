"""A file that is not text is named by what it is, with what to do, whatever its name is."""

import gzip
import io
import tarfile
import zipfile

import pytest

from dragoman.data.corpus import ParallelCorpus
from dragoman.data.lines import read_lines
from dragoman.errors import UserError

EXPORT = "export it as plain text, TMX or CSV first."


def zip_of(*members: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for member in members:
            archive.writestr(member, "<xml/>")
    return data.getvalue()


def tar_of(text: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        member = tarfile.TarInfo("train.en")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return data.getvalue()


BINARY = {
    "docx": (zip_of("[Content_Types].xml", "word/document.xml"), f"is a Word document; {EXPORT}"),
    "xlsx": (zip_of("[Content_Types].xml", "xl/workbook.xml"), f"is an Excel workbook; {EXPORT}"),
    "pptx": (zip_of("ppt/presentation.xml"), f"is a PowerPoint presentation; {EXPORT}"),
    "odt": (zip_of("mimetype", "content.xml"), f"is an OpenDocument file; {EXPORT}"),
    "epub": (zip_of("mimetype", "META-INF/container.xml"), f"is an EPUB book; {EXPORT}"),
    "zip": (zip_of("train.en"), "is a ZIP archive; unpack it first."),
    "damaged zip": (b"PK\x03\x04" + bytes(range(256)), "is a ZIP archive; unpack it first."),
    "doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "is an Office document (.doc, .xls, .ppt); export"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", f"is a PDF document; {EXPORT}"),
    "rtf": (b"{\\rtf1\\ansi text}", f"is an RTF document; {EXPORT}"),
    "parquet": (b"PAR1\x15\x04\x15\xff", "is a Parquet file; export it as CSV or JSONL first."),
    "sqlite": (b"SQLite format 3\0" + bytes(100), "is an SQLite database; export it as CSV or JSONL first."),
    "tar": (tar_of(b"a dog\n"), "is a tar archive; unpack it with `tar -xf` first."),
    "tar.gz": (gzip.compress(tar_of(b"a dog\n"), mtime=0), "is a tar archive; unpack it with `tar -xf` first."),
    "gz.gz": (
        gzip.compress(gzip.compress(b"a\n", mtime=0), mtime=0),
        "is a gzip archive inside a gzip archive",
    ),
    "xz": (b"\xfd7zXZ\0" + bytes(20), "is an xz archive; unpack it with `unxz` first."),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "is a PNG image; expected a text file."),
}
MARKUP = {
    "html": (b"<!DOCTYPE html>\n<html><body>a</body></html>\n", f"is an HTML page; {EXPORT}"),
    "xliff": (b'<?xml version="1.0"?>\n<xliff version="1.2">\n</xliff>\n', f"is an XLIFF file; {EXPORT}"),
    "xml": (b'<?xml version="1.0"?>\n<corpus>\n</corpus>\n', f"is an XML file; {EXPORT}"),
}


@pytest.mark.parametrize("kind", BINARY)
def test_what_is_no_text_is_named_wherever_lines_are_read(write, kind):
    content, words = BINARY[kind]
    path = write("company.txt", content)
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path} {words}")


@pytest.mark.parametrize("kind", [*BINARY, *MARKUP])
def test_what_is_no_text_is_named_as_pairs_and_as_source(write, kind):
    content, words = {**BINARY, **MARKUP}[kind]
    path = write("company.txt", content)
    for corpus in (ParallelCorpus.from_files(pairs=path), ParallelCorpus.from_files(path, path)):
        with pytest.raises(UserError) as caught:
            corpus.count_pairs()
        assert str(caught.value).startswith(f"{path} {words}")


def test_a_translation_memory_given_as_plain_text_is_named(write):
    path = write("company.txt", b'<?xml version="1.0"?>\n<tmx version="1.4"></tmx>\n')
    with pytest.raises(UserError, match=r"is a TMX file; give it with --pairs"):
        ParallelCorpus.from_files(path, path).count_pairs()


@pytest.mark.parametrize("line", ["SQLite is a database", "BZh", "GIF8", "PAR1 is a format", "%PDF", "7z", "< 5 eggs"])
def test_text_that_begins_like_a_magic_number_is_text(write, line):
    path = write("text", [line])
    assert ParallelCorpus.from_files(path, path).count_pairs() == 1
