"""The requests and responses of the API: pydantic models that validate and describe them, JSON, validation errors."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from dragoman.errors import did_you_mean
from dragoman.server.encoding import encode_json
from dragoman.server.limits import Limits
from dragoman.server.problems import Problem

_DEFAULT_LIMITS = Limits()  # shown in the description of the API; a server may have lower ones
# A name that an error may repeat; anything else may be text that was sent by mistake.
_REPEATABLE_NAME = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII)
_ERRORS_OF_ALL_ROUTES = (401, 403, 421, 503)
_ERRORS_OF_ROUTES_WITH_BODY = (400, 408, 413, 415, 422, 429)
_Name = Annotated[str, StringConstraints(max_length=256)]
_RequestText = Annotated[str, StringConstraints(max_length=_DEFAULT_LIMITS.text_characters)]
_RequestTexts = Annotated[list[_RequestText], Field(min_length=1, max_length=_DEFAULT_LIMITS.texts)]
_RequestBeam = Annotated[int, Field(ge=1, le=_DEFAULT_LIMITS.beam)]
_RequestHead = Annotated[
    tuple[
        Literal["encoder", "decoder", "cross"],
        Annotated[int, Field(ge=0, le=999)],
        Annotated[int, Field(ge=0, le=9999)],
    ],
    Field(strict=False),  # JSON has lists only
]


class StrictRequest(BaseModel):
    """A request: unknown fields are refused, and values are not converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_field(cls, values: Any) -> Any:
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields and _REPEATABLE_NAME.fullmatch(name):
                hint = did_you_mean(name, list(cls.model_fields))
                raise PydanticCustomError(
                    "unknown_field", 'Unknown field "{name}".{hint}', {"name": name, "hint": hint}
                )
        return values


class TranslateRequest(StrictRequest):
    """One or several texts to translate, or to process with a model of another task."""

    text: _RequestText | None = Field(None, description="the text; for a language model, the prompt")
    texts: _RequestTexts | None = Field(None, description="several texts, instead of text")
    model: _Name | None = Field(
        None, description="name of the model, as in /v1/info; the first that reads text if omitted"
    )
    source: _Name | None = Field(None, description="code of the source language, instead of model")
    target: _Name | None = Field(None, description="code of the target language, instead of model")
    beam: _RequestBeam | None = Field(None, description="beam width; if omitted, that of the model's recipe")
    n_best: _RequestBeam = Field(1, description="number of translations per text, best first")
    prefix: _RequestText = Field("", description="text that the translation must begin with; only for a single text")
    details: bool = Field(False, description="also return tokens, words and word alignment")
    details_of: Literal["best", "all"] = Field(
        "best", description="which translations of a text have details: the best, or all of n_best"
    )
    pictures: bool = Field(False, description="also return drawings of the outputs, for models whose output is a tree")
    split: bool = Field(True, description="split the text into sentences; otherwise into lines only")
    stream: bool = Field(False, description="stream the translation of a single text as server-sent events")
    length: int | None = Field(None, ge=1, le=2000, description="maximum number of generated tokens (language models)")
    temperature: float | None = Field(None, ge=0, le=10, description="sampling temperature; 0: greedy")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="sample from the k most likely tokens; 0: all")
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="sample from the fewest likeliest tokens with at least this total probability",
    )
    seed: int | None = Field(None, ge=0, lt=1 << 31, description="random seed")
    stop: Annotated[str, StringConstraints(max_length=256)] | None = Field(None, description="stop before this text")


class AttentionRequest(StrictRequest):
    """One sentence whose translation is inspected."""

    text: _RequestText = Field(description="the sentence", min_length=1)
    model: _Name | None = Field(None, description="name of the model; the first that reads text if omitted")
    target: _RequestText | None = Field(None, description="a translation to inspect instead of the model's own")
    prefix: _RequestText = Field("", description="text that the translation must begin with")
    ablate_heads: list[_RequestHead] = Field(
        [], max_length=512, description="attention heads to ablate: kind, layer, head, counted from 0"
    )
    without: list[_RequestHead] | None = Field(
        None, max_length=512, deprecated=True, description="former name of ablate_heads"
    )
    beam: _RequestBeam | None = Field(None, description="beam width")
    trace: bool = Field(False, description="also return the tree of hypotheses")
    checkpoint: int | None = Field(None, ge=0, le=999_999_999, description="step of a saved checkpoint to use")

    @model_validator(mode="before")
    @classmethod
    def _accept_old_names(cls, values: Any) -> Any:
        if isinstance(values, dict) and "without" in values and "ablate_heads" not in values:
            return {**values, "ablate_heads": values["without"]}
        return values


class TranscribeRequest(StrictRequest):
    """The fields of a form beside its file; their values are written as text."""

    model_config = ConfigDict(strict=False)

    model: _Name | None = Field(None, description="name of the transcriber; the first if omitted")
    beam: _RequestBeam | None = Field(None, description="beam width; if omitted, that of the model's recipe")
    details: bool = Field(False, description="also return the signal, and where the model attends for each token")


class OpenAITranscriptionRequest(BaseModel):
    """The fields of OpenAI's clients beside the recording; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: _Name | None = Field(None, description="name of a transcriber; any other name stands for the first")
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = Field(
        "json", description="form of the response"
    )
    timestamp_granularities: list[Literal["word", "segment"]] = Field(
        [],
        max_length=2,
        alias="timestamp_granularities[]",
        description="which times verbose_json has; segment if omitted",
    )
    language: Annotated[str, StringConstraints(max_length=35)] | None = Field(
        None, description="has no effect; verbose_json repeats it"
    )
    prompt: str | None = Field(None, description="has no effect")
    temperature: float | None = Field(None, ge=0, le=1, description="has no effect")
    stream: bool | None = Field(None, description="true is refused")

    @field_validator("timestamp_granularities", mode="before")
    @classmethod
    def _accept_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class LibreTranslateRequest(BaseModel):
    """A request of LibreTranslate's clients; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    q: _RequestText | _RequestTexts = Field(description="one text or several")
    source: _Name = Field("auto", description="code of the source language, or auto")
    target: _Name = Field(description="code of the target language")
    format: Literal["text", "html"] = Field("text", description="html: tags are kept")
    alternatives: int = Field(
        0, ge=0, le=_DEFAULT_LIMITS.beam - 1, description="number of alternative translations per text"
    )
    api_key: str | None = Field(None, max_length=1024, description="the token, if the server requires one")


class DetectRequest(BaseModel):
    """A text whose language is to be detected."""

    model_config = ConfigDict(extra="ignore")

    q: _RequestText = Field(description="the text")
    api_key: str | None = Field(None, max_length=1024, description="the token, if the server requires one")


class TokenSpan(BaseModel):
    """A token of a translation and the characters that it covers."""

    piece: str
    start: int
    end: int


class TranslationResult(BaseModel):
    """One translation."""

    text: str
    score: float = Field(description="score that ranks the translations; the mean over the sentences of a text")
    log_probability: float = Field(description="log probability; the sum over the sentences of a text")
    truncated: bool = Field(description="whether the translation was cut at the length limit")
    tokens: list[TokenSpan] | None = None
    source_words: list[tuple[int, int]] | None = Field(None, description="start and end of each word of the text")
    target_words: list[tuple[int, int]] | None = Field(None, description="start and end of each translated word")
    alignment: list[tuple[int, int]] | None = Field(None, description="pairs of indices of aligned words")
    pictures: list[str] | None = Field(None, description="SVG drawings of the output, one per line that has one")


class TranslateResponse(BaseModel):
    """The translations of each text, best first."""

    translations: list[list[TranslationResult]]
    model: str


class TranscribedWord(BaseModel):
    """A word of a transcript, and when it was heard."""

    text: str
    start_seconds: float
    end_seconds: float


class SignalFrames(BaseModel):
    """The log-mel frames of a segment."""

    frames: str = Field(description="base64 of one byte per feature, frame by frame; 0 is the weakest")
    length: int = Field(description="number of frames")
    bands: int = Field(description="number of features in a frame")
    seconds_per_frame: float


class SignalAttention(BaseModel):
    """Where the decoder attends to the signal for each token: one layer, mean over its heads."""

    tokens: list[TokenSpan]
    weights: str = Field(description="base64 of one byte per position, token by token; the maximum of each is 255")
    positions: int = Field(description="number of positions of the encoder")
    seconds_per_position: float


class TranscribedSegment(BaseModel):
    """The transcript of a stretch of a recording between two silences."""

    text: str
    start_seconds: float
    end_seconds: float
    score: float = Field(description="score that ranks transcripts of the segment")
    words: list[TranscribedWord]
    signal: SignalFrames | None = None
    attention: SignalAttention | None = None


class TranscribeResponse(BaseModel):
    """The transcript of a recording."""

    text: str
    duration_seconds: float
    segments: list[TranscribedSegment]
    model: str


class ErrorResponse(BaseModel):
    """An error: a message for people, a code for programs."""

    error: str
    code: str
    field: str | None
    request_id: str


class OpenAIError(BaseModel):
    """An error in OpenAI's form."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorResponse(BaseModel):
    """An error of a route of OpenAI's API."""

    error: OpenAIError
    request_id: str


class OpenAITranscriptionResponse(BaseModel):
    """A transcript in OpenAI's form: `json`, or `verbose_json` with all fields."""

    text: str
    usage: dict[str, Any]
    task: str | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[dict[str, Any]] | None = None
    words: list[dict[str, Any]] | None = None


class LibreLanguage(BaseModel):
    """A source language and its targets."""

    code: str
    name: str
    targets: list[str]


class DetectedLanguage(BaseModel):
    """A language and the confidence in it, in percent."""

    confidence: float
    language: str


class LibreTranslateResponse(BaseModel):
    """A translation in LibreTranslate's format: a list if the request has a list."""

    translatedText: str | list[str]  # noqa: N815  LibreTranslate's name
    alternatives: list[Any] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815


_FIELD_NAMES = {
    name
    for request in (
        TranslateRequest,
        AttentionRequest,
        TranscribeRequest,
        OpenAITranscriptionRequest,
        LibreTranslateRequest,
        DetectRequest,
    )
    for field, described in request.model_fields.items()
    for name in (field, described.alias)
}


def error_responses(
    *codes: int, body: bool = False, model: type[BaseModel] = ErrorResponse
) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for the description of the API."""
    all_codes = {*_ERRORS_OF_ALL_ROUTES, *codes, *(_ERRORS_OF_ROUTES_WITH_BODY if body else ())}
    return {code: {"model": model} for code in sorted(all_codes)}


def json_response(content: Any, limits: Limits, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; `content` may be encoded. Raise a problem if it is too large."""
    body = content if isinstance(content, bytes) else encode_json(content)
    if len(body) > limits.response_bytes:
        message = (
            f"The response would have more than {limits.response_bytes} bytes; send fewer or shorter texts, or request "
            "fewer alternatives and details."
        )
        raise Problem(422, "answer_too_large", message)
    return Response(body, media_type="application/json", headers=headers)


def validation_problem(errors: Sequence[Mapping[str, Any]], status: int) -> Problem:
    """Return the problem for pydantic's errors, without any value that the client has sent."""
    first = errors[0]
    if first["type"] == "unknown_field":
        return Problem(status, "invalid", first["msg"], field=first["ctx"]["name"])
    if first["type"] == "extra_forbidden":
        return Problem(status, "invalid", "Unknown field; /docs lists the fields of each route.")
    if first["type"] == "json_invalid":
        return Problem(status, "not_json", "The body is not valid JSON.")
    path = [str(part) for part in first["loc"] if isinstance(part, int) or part in _FIELD_NAMES]
    return Problem(status, "invalid", f"{first['msg']}.", field=".".join(path) or None)
