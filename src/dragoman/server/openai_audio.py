"""OpenAI's API for transcription, so that its clients work with another base URL: its fields, responses and errors."""

import json
import zlib
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import PlainTextResponse

from dragoman.server.limits import Limits, RouteLimits
from dragoman.server.problems import Problem
from dragoman.server.schemas import (
    OpenAIErrorResponse,
    OpenAITranscriptionRequest,
    OpenAITranscriptionResponse,
    TranscribeRequest,
    error_responses,
    json_response,
)
from dragoman.server.service import Service, TranslationService
from dragoman.server.uploads import Upload, describe_form, validate_fields

_PATH = "/v1/audio/transcriptions"
_FORMATS: dict[int | str, dict[str, Any]] = {
    200: {"model": OpenAITranscriptionResponse, "content": {"text/plain": {"schema": {"type": "string"}}}}
}

router = APIRouter()


@router.post(
    _PATH,
    responses={**_FORMATS, **error_responses(404, body=True, model=OpenAIErrorResponse)},
    openapi_extra=describe_form(OpenAITranscriptionRequest),
)
async def openai_transcribe(request: Request, service: Service) -> Response:
    """Transcribe a recording, as OpenAI's API does."""
    async with service.uploads.receive(request) as upload:
        return await _respond(service, upload, validate_fields(OpenAITranscriptionRequest, upload.fields))


def route_limits(limits: Limits) -> dict[str, RouteLimits]:
    """Return the limits of this route, whose errors have OpenAI's form."""
    return {_PATH: RouteLimits.for_audio(limits, error_format="openai")}


async def _respond(service: TranslationService, upload: Upload, request: OpenAITranscriptionRequest) -> Response:
    _check_supported(request)
    names = [model["name"] for model in service.worker.models]
    # Clients have OpenAI's own models as defaults, such as whisper-1.
    native = TranscribeRequest(model=request.model if request.model in names else None)
    if request.response_format in ("srt", "vtt"):
        subtitles = await service.transcribe(upload, native, subtitles=request.response_format)
        return PlainTextResponse(subtitles)
    transcript = json.loads(await service.transcribe(upload, native))
    if request.response_format == "text":
        return PlainTextResponse(transcript["text"] + "\n")
    return json_response(_format_json(transcript, request), service.limits)


def _check_supported(request: OpenAITranscriptionRequest) -> None:
    if request.stream:
        raise Problem(400, "unsupported", "stream is not supported; send stream=false.", field="stream")
    if request.timestamp_granularities and request.response_format != "verbose_json":
        message = "timestamp_granularities need response_format=verbose_json."
        raise Problem(400, "invalid", message, field="timestamp_granularities[]")


def _format_json(transcript: dict[str, Any], request: OpenAITranscriptionRequest) -> dict[str, Any]:
    seconds = transcript["duration_seconds"]
    response: dict[str, Any] = {"text": transcript["text"], "usage": {"type": "duration", "seconds": seconds}}
    if request.response_format == "json":
        return response
    granularities = request.timestamp_granularities or ["segment"]
    response |= {"task": "transcribe", "language": request.language or "", "duration": seconds}
    if "segment" in granularities:
        response["segments"] = [_format_segment(*each) for each in enumerate(transcript["segments"])]
    if "word" in granularities:
        words = [word for segment in transcript["segments"] for word in segment["words"]]
        response["words"] = [
            {"word": word["text"], "start": word["start_seconds"], "end": word["end_seconds"]} for word in words
        ]
    return response


def _format_segment(number: int, segment: dict[str, Any]) -> dict[str, Any]:
    text = segment["text"].encode()
    return {
        "id": number,
        "start": segment["start_seconds"],
        "end": segment["end_seconds"],
        "text": segment["text"],
        "avg_logprob": segment["score"],
        "compression_ratio": len(text) / len(zlib.compress(text)),
        # What follows has no counterpart here; clients expect the fields.
        "seek": 0,
        "tokens": [],
        "temperature": 0.0,
        "no_speech_prob": 0.0,
    }
