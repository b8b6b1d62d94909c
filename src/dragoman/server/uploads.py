"""Forms with a recording: read from the request part by part, the recording into a temporary file.

A form is never in memory as a whole. The file is in a private directory, and is removed when the request has been
answered, refused or abandoned. The names and values that a client sends are not repeated in errors.
"""

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem, server_busy
from dragoman.server.schemas import validation_problem

_FORM = "multipart/form-data"
_MAX_PARTS = 32
_MAX_FIELD_BYTES = 8 << 10
_FormSchema = TypeVar("_FormSchema", bound=BaseModel)


@dataclass
class Upload:
    """A form that is being received: its recording in a file, and its other fields."""

    path: Path
    client: str | None
    size: int = 0  # of the recording
    has_file: bool = False
    fields: dict[str, str | list[str]] = field(default_factory=dict)  # a list: the field is repeated


class UploadFolder:
    """A private directory with the recordings of the requests that are being answered."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.stored_bytes = 0
        self.by_client: Counter[str] = Counter()
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True)

    @property
    def path(self) -> Path:
        """The directory, which only this user can read."""
        return Path(self._folder.name)

    def remove(self) -> None:
        """Remove the directory and what is in it."""
        self._folder.cleanup()

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[Upload]:
        """Receive a form; its file exists until the block is left."""
        boundary = _boundary_of(request)
        with ExitStack() as stack:
            upload, file = stack.enter_context(self._store(request.state.client))
            reader = _FormReader(boundary, upload, file, self)
            async for chunk in request.stream():
                reader.feed(chunk)
            reader.finish()
            file.flush()
            yield upload

    @contextmanager
    def _store(self, client: str | None) -> Iterator[tuple[Upload, IO[bytes]]]:
        """Create a file; remove it afterwards, and count it in between."""
        limit = self.limits.requests_per_client
        if client is not None and self.by_client[client] >= limit:
            raise Problem(429, "too_many", f"A client may have at most {limit} requests at a time.", retry_after=1)
        self.by_client[client or ""] += 1
        try:
            with tempfile.NamedTemporaryFile(dir=self._folder.name) as file:
                upload = Upload(Path(file.name), client)
                try:
                    yield upload, file
                finally:
                    self.stored_bytes -= upload.size
        finally:
            self.by_client[client or ""] -= 1
            if not self.by_client[client or ""]:
                del self.by_client[client or ""]

    def write(self, upload: Upload, file: IO[bytes], data: bytes) -> None:
        """Append to the file of a form; raise a problem if all files together would be too large."""
        limit = max(self.limits.stored_audio_bytes, self.limits.audio_bytes)
        if self.stored_bytes + len(data) > limit:
            raise server_busy()
        self.stored_bytes += len(data)
        upload.size += len(data)
        try:
            file.write(data)
        except OSError:  # no space is left
            raise Problem(
                503, "busy", "The server cannot store the recording; try again later.", retry_after=5
            ) from None


class _FormReader:
    """Parses a form while it arrives."""

    def __init__(self, boundary: bytes, upload: Upload, file: IO[bytes], folder: UploadFolder) -> None:
        self.upload, self.file, self.folder = upload, file, folder
        self.header = b""
        self.value = b""
        self.disposition = b""
        self.name: str | None = None  # of the field whose value arrives
        self.content = b""
        self.parts = 0
        self.is_complete = False
        callbacks: Any = {
            "on_part_begin": self._begin_part,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_header_field": self._add_to_header,
            "on_header_value": self._add_to_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_end": self._end,
        }
        try:
            self.parser = MultipartParser(boundary, callbacks)
        except FormParserError:
            raise _bad_form() from None

    def feed(self, data: bytes) -> None:
        """Parse the next part of the body."""
        try:
            self.parser.write(data)
        except FormParserError:
            raise _bad_form() from None

    def finish(self) -> None:
        """Check that the form is complete and has a file."""
        if not self.is_complete:
            raise Problem(400, "bad_form", "The form is truncated: its last boundary is missing.")
        if not self.upload.has_file:
            message = "The field file is missing: send a WAV, FLAC, MP3 or OGG file."
            raise Problem(422, "invalid", message, field="file")

    def _begin_part(self) -> None:
        self.header = self.value = self.disposition = self.content = b""
        self.parts += 1
        if self.parts > _MAX_PARTS:
            raise Problem(422, "invalid", f"A form may have at most {_MAX_PARTS} fields.")

    def _add_to_header(self, data: bytes, start: int, end: int) -> None:
        self.header += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def _end_header(self) -> None:
        if self.header.lower() == b"content-disposition":
            self.disposition = self.value
        self.header = self.value = b""

    def _end_headers(self) -> None:
        kind, options = parse_options_header(self.disposition.decode("latin-1"))
        if kind != b"form-data" or b"name" not in options:
            raise _bad_form()
        self.name = options[b"name"].decode("utf-8", "replace")
        if self.name != "file":
            if b"filename" in options:
                raise Problem(422, "invalid", "The recording must be in the field file.", field="file")
            return
        if self.upload.has_file:
            raise Problem(422, "invalid", "Send one recording at a time.", field="file")
        self.upload.has_file = True

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self.name == "file":
            self.folder.write(self.upload, self.file, data[start:end])
            return
        self.content += data[start:end]
        if len(self.content) > _MAX_FIELD_BYTES:
            raise Problem(422, "invalid", f"A field beside the recording may have at most {_MAX_FIELD_BYTES} bytes.")

    def _end_part(self) -> None:
        if self.name not in (None, "file"):
            fields, name, value = self.upload.fields, str(self.name), self.content.decode("utf-8", "replace")
            earlier = fields.get(name, [])
            several = [*([earlier] if isinstance(earlier, str) else earlier), value]
            fields[name] = several if len(several) > 1 else value

    def _end(self) -> None:
        self.is_complete = True


def _boundary_of(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != _FORM.encode():
        raise Problem(415, "content_type", f"Send {_FORM}, with the recording in the field file.")
    if not options.get(b"boundary"):
        raise _bad_form()
    return options[b"boundary"]


def _bad_form() -> Problem:
    return Problem(400, "bad_form", f"The body is not valid {_FORM}.")


def validate_fields(schema: type[_FormSchema], fields: Mapping[str, str | list[str]]) -> _FormSchema:
    """Return the fields of a form beside the recording; raise a problem if one is unknown or invalid."""
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise validation_problem(error.errors(include_url=False, include_input=False), 422) from None


def describe_form(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a form with a recording and the fields of a schema."""
    described = schema.model_json_schema(ref_template="#/components/schemas/{model}")
    file = {"type": "string", "format": "binary", "description": "the recording: a WAV, FLAC, MP3 or OGG file"}
    properties = {"file": file, **described.get("properties", {})}
    required = ["file", *described.get("required", ())]
    content = {_FORM: {"schema": {**described, "properties": properties, "required": required}}}
    return {"requestBody": {"required": True, "content": content}}
