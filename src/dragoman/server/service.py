"""What the routes do: choose a model, split texts, send requests to the worker, and return what it has answered."""

import asyncio
import ipaddress
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request

from dragoman import __version__
from dragoman.server.admission import Admission
from dragoman.server.encoding import encode_json
from dragoman.server.limits import Limits
from dragoman.server.metrics import ServerMetrics
from dragoman.server.old_names import add_old_names
from dragoman.server.problems import Problem
from dragoman.server.schemas import AttentionRequest, TranscribeRequest, TranslateRequest
from dragoman.server.uploads import Upload, UploadFolder
from dragoman.server.work import (
    TooMuchWork,
    check_work,
    generation_work,
    least_search_work,
    most_recording_work,
    most_search_work,
    search_work,
)
from dragoman.server.worker_client import WorkerClient, current_client
from dragoman.text.languages import language_name
from dragoman.text.sentences import SegmentedText, split_sentences

_Ranked = list[dict[str, Any]]  # translations of one text, best first
_Part = TypeVar("_Part")
_Merged = TypeVar("_Merged")


class _HasSentences(Protocol):
    @property
    def sentences(self) -> tuple[str, ...]: ...


_Split = TypeVar("_Split", bound=_HasSentences)
_HEALTH_TIMEOUT_SECONDS = 5.0
_PROBE_TEXT = "1"
_SEARCH_FIELDS = ("beam", "n_best", "details", "details_of", "pictures", "split")
_SAMPLING_FIELDS = ("length", "temperature", "top_k", "top_p", "seed", "stop")


class TranslationService:
    """Answers the requests of all routes."""

    def __init__(
        self,
        worker: WorkerClient,
        admission: Admission,
        limits: Limits,
        metrics: ServerMetrics,
        uploads: UploadFolder | None = None,
    ) -> None:
        self.worker, self.admission, self.limits, self.metrics = worker, admission, limits, metrics
        self.uploads = uploads or UploadFolder(limits)
        self.is_draining = False
        self._health_probe: asyncio.Task[bool] | None = None
        self._large_request = asyncio.Lock()  # held while one request with several texts is split or merged

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted: the models are loaded, and the server is not stopping."""
        return self.worker.is_ready and not self.is_draining

    @property
    def translators(self) -> list[dict[str, Any]]:
        """The models that translate between two languages."""
        return [model for model in self.worker.models if model["has_language_pair"]]

    def find_model(
        self, name: str | None = None, source: str | None = None, target: str | None = None
    ) -> dict[str, Any]:
        """Return the first model with this name and these languages."""
        return self._find_model(self.worker.models, name, source, target)

    def find_text_model(
        self, name: str | None = None, source: str | None = None, target: str | None = None
    ) -> dict[str, Any]:
        """Return the first model with this name and these languages that reads text."""
        models = [model for model in self.worker.models if not model["reads_signals"]]
        if name is None and not models:
            raise Problem(422, "invalid", "No model of this server reads text; see /v1/transcribe.", field="model")
        model = self._find_model(self.worker.models if name is not None else models, name, source, target)
        if model["reads_signals"]:
            noun = model["noun"]
            raise Problem(
                422, "invalid", f"This model is a {noun}; send it a recording, to /v1/transcribe.", field="model"
            )
        return model

    def find_transcriber(self, name: str | None = None) -> dict[str, Any]:
        """Return the transcriber with this name, or the first."""
        transcribers = [model for model in self.worker.models if model["reads_signals"]]
        if not transcribers:
            raise Problem(
                404, "unknown", "No model of this server transcribes; /v1/info lists the models.", field="model"
            )
        if name is None:
            return transcribers[0]
        model = self.find_model(name)
        if not model["reads_signals"]:
            message = f"This model is a {model['noun']}; a transcriber of this server is {transcribers[0]['name']}."
            raise Problem(422, "invalid", message, field="model")
        return model

    def _find_model(
        self, models: Sequence[dict[str, Any]], name: str | None, source: str | None, target: str | None
    ) -> dict[str, Any]:
        criteria = {"name": name, "source": source, "target": target}
        for key, value in criteria.items():
            if value is not None and all(model[key] != value for model in models):
                field = "model" if key == "name" else key
                raise Problem(404, "unknown", f"Unknown {field}; /v1/info lists the models.", field=field)
        for model in models:
            if all(value is None or model[key] == value for key, value in criteria.items()):
                return model
        raise Problem(404, "unknown", "No model translates between these languages.", field="target")

    async def translate(self, request: TranslateRequest) -> bytes:
        """Answer `/v1/translate`."""
        texts, model = self._texts_and_model(request)
        if model["is_language_model"]:
            options = {"n_best": request.n_best, **_sampling_options(request)}
            return _translate_response(model, await self.run_operation("generate", model, texts, **options))
        options = _search_options(request) | ({"prefix": request.prefix} if request.prefix else {})

        def split(text: str) -> SegmentedText:
            if request.prefix:
                return _keep_whole(text)
            self._check_least_work("translate", model, _written_lines(text), options)
            return split_for(model, text, split=request.split)

        self.check_lengths(texts)
        with self.admission.reserve(self._most_work("translate", model, texts, options)):
            parts, sentences = await self._split_texts(model, texts, split, options)
            options["layout"] = [part.gaps for part in parts]
            return _translate_response(model, await self._ask_worker("translate", model, sentences, options))

    async def stream(self, request: TranslateRequest) -> AsyncIterator[dict[str, Any] | bytes]:
        """Yield the translation of one text while it grows, then the answer of `translate`."""
        (text,), model = self._texts_and_model(request)
        if model["is_language_model"]:
            operation, segmented = "generate", _keep_whole(text)
            options: dict[str, Any] = {"n_best": request.n_best, "send_parts": True, **_sampling_options(request)}
        else:
            operation, segmented = "stream", split_for(model, text, split=request.split)
            options = {"layout": [segmented.gaps], **_search_options(request)}
        parts = [""] * len(segmented.sentences)
        results: Any = []
        self.check_lengths([text])
        self._check_least_work(operation, model, segmented.sentences, options)
        with self.admission.reserve(self._most_work(operation, model, [text], options)):
            fields = {"model": model["name"], "texts": segmented.sentences, **options}
            async for message in self.worker.stream(operation, **fields):
                if "result" in message:
                    results = message["result"]
                else:
                    parts[message["part"]["index"]] = message["part"]["text"]
                    so_far = "".join(parts) if model["is_language_model"] else segmented.fill(parts).rstrip()
                    yield {"text": so_far}
        yield _translate_response(model, results)

    async def transcribe(self, upload: Upload, request: TranscribeRequest, *, subtitles: str | None = None) -> bytes:
        """Answer `/v1/transcribe`; with `subtitles`, "srt" or "vtt", return a file of subtitles."""
        model = self.find_transcriber(request.model)
        self.check_numbers(beam=request.beam)
        options = {"beam": request.beam, "details": request.details, "subtitles": subtitles}
        work = most_recording_work(upload.size, _beam_of(model, options), options)
        with self.admission.reserve(min(work, self.limits.request_work), self.limits.audio_deadline_seconds):
            fields = {"model": model["name"], "path": str(upload.path), **options}
            answer: bytes = await self.worker.request("transcribe", **fields)
        self.metrics.recordings += 1
        return answer

    async def inspect_translation(self, request: AttentionRequest) -> dict[str, Any]:
        """Answer `/v1/attention`."""
        model = self.find_text_model(request.model)
        self.check_lengths([request.text, request.target or "", request.prefix])
        self.check_numbers(beam=request.beam)
        with self.admission.reserve(self._inspection_work(model, request)):
            fields = request.model_dump(exclude={"model", "without"})
            document: dict[str, Any] = await self.worker.request("inspect", model=model["name"], **fields)
        return add_old_names(document)

    async def head_report(self, model_name: str | None) -> dict[str, Any]:
        """Answer `/v1/report`."""
        model = self.find_model(model_name)
        report: dict[str, Any] | None = await self.worker.request("head_report", model=model["name"])
        if report is None:
            raise Problem(404, "no_report", "This model has no head report; `dragoman heads` creates one.")
        return report

    async def checkpoints(self, model_name: str | None) -> dict[str, Any]:
        """Answer `/v1/checkpoints`."""
        name = self.find_model(model_name)["name"]
        return {"model": name, "checkpoints": await self.worker.request("checkpoints", model=name)}

    async def detect_language(self, text: str) -> list[dict[str, Any]]:
        """Rank the source languages by the score of their models' translations of a text, best first."""
        models = {model["source"]: model for model in reversed(self.translators)}
        sentences = split_sentences(text).sentences[:1]
        if len(models) < 2 or not sentences:
            return [{"language": code, "confidence": round(100 / len(models), 1)} for code in models]
        requests = (self.run_operation("translate", model, sentences, beam=1) for model in models.values())
        answers = await asyncio.gather(*requests)
        likelihoods = [math.exp(max(-50.0, candidates[0][0]["score"])) for candidates in answers]
        total = sum(likelihoods) or 1.0
        ranked = sorted(zip(likelihoods, models, strict=True), reverse=True)
        return [{"language": code, "confidence": round(100 * share / total, 1)} for share, code in ranked]

    def info(self) -> dict[str, Any]:
        """Answer `/v1/info`: the models and the limits."""
        models = [
            {
                **model,
                "source_name": language_name(model["source"]),
                "target_name": language_name(model["target"]),
            }
            for model in self.worker.models
        ]
        return add_old_names({"version": __version__, "models": models, "limits": vars(self.limits)})

    async def is_healthy(self) -> bool:
        """Return whether a translation, or a transcription, succeeds; concurrent calls share one."""
        if self._health_probe is None or self._health_probe.done():
            self._health_probe = asyncio.create_task(self._run_health_probe())
        return await asyncio.shield(self._health_probe)

    async def run_operation(
        self, operation: str, model: dict[str, Any], texts: Sequence[str], **options: Any
    ) -> list[_Ranked]:
        """Send texts to the worker and return the translations of each; refuse them if there is too much work."""
        self.check_lengths(texts)
        self._check_least_work(operation, model, texts, options)
        with self.admission.reserve(self._most_work(operation, model, texts, options)):
            translations: list[_Ranked] = await self._ask_worker(operation, model, texts, options)
            return translations

    async def translate_split(
        self,
        model: dict[str, Any],
        texts: Sequence[str],
        split: Callable[[str], _Split],
        merge: Callable[[_Split, Sequence[_Ranked]], _Merged],
        /,  # `split` is also an option
        **options: Any,
    ) -> list[_Merged]:
        """Split texts, translate the sentences of all of them in one request to the worker, and merge those of each."""
        self.check_lengths(texts)
        with self.admission.reserve(self._most_work("translate", model, texts, options)):
            parts, sentences = await self._split_texts(model, texts, split, options)
            results = iter(await self._ask_worker("translate", model, sentences, options) if sentences else [])
            rows = [(part, [next(results) for _ in part.sentences]) for part in parts]
            return await self._for_each(lambda row: merge(*row), rows)

    async def _split_texts(
        self,
        model: dict[str, Any],
        texts: Sequence[str],
        split: Callable[[str], _Split],
        options: Mapping[str, Any],
    ) -> tuple[list[_Split], list[str]]:
        """Return the split texts, and the sentences of all of them."""
        parts = await self._for_each(split, texts)
        sentences = [sentence for part in parts for sentence in part.sentences]
        self._check_least_work("translate", model, sentences, options)
        return parts, sentences

    async def _ask_worker(
        self, operation: str, model: dict[str, Any], texts: Sequence[str], options: Mapping[str, Any]
    ) -> Any:
        """Return the translations of each text, or their JSON text if the options have a layout."""
        fields = {"model": model["name"], "texts": list(texts), **options}
        translations = await self.worker.request(operation, **fields)
        self.metrics.sentences += len(texts)
        self.metrics.characters += sum(map(len, texts))
        return translations

    async def _for_each(self, function: Callable[[_Part], _Merged], items: Sequence[_Part]) -> list[_Merged]:
        """Return function(item) for each item. Of several items one request at a time, and others come in between."""
        if len(items) == 1:
            return [function(items[0])]
        results = []
        async with self._large_request:
            for item in items:
                results.append(function(item))
                await asyncio.sleep(0)
        return results

    def _check_least_work(
        self, operation: str, model: dict[str, Any], texts: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        """Refuse what needs too much work at the very least; the worker counts the tokens."""
        if operation == "generate":
            work = generation_work(options, len(texts))
        else:
            work = least_search_work(texts, _beam_of(model, options), options)
        try:
            check_work(work, self.limits.request_work)
        except TooMuchWork as error:
            raise Problem(422, "too_much_work", str(error)) from None

    def _most_work(
        self, operation: str, model: dict[str, Any], texts: Sequence[str], options: Mapping[str, Any]
    ) -> int:
        """Return the work that the texts of a request need at most."""
        if operation == "generate":
            work = generation_work(options, len(texts), sum(map(len, texts)))
        else:
            work = most_search_work(texts, _beam_of(model, options), options)
        return min(work, self.limits.request_work)

    def _inspection_work(self, model: dict[str, Any], request: AttentionRequest) -> int:
        work = most_search_work([request.text], request.beam or model["beam"], {"details": True})
        return min(work, search_work([self.limits.attention_tokens], self.limits.beam, 1))

    def check_lengths(self, texts: Sequence[str]) -> None:
        """Refuse texts longer than this server's limit, which may be lower than that of the schema."""
        limit = self.limits.text_characters
        if any(len(text) > limit for text in texts):
            raise Problem(422, "invalid", f"A text may have at most {limit} characters.", field="text")

    def check_numbers(self, **numbers: int | None) -> None:
        """Refuse more texts, hypotheses or alternatives than this server's limits, which may be lower, too."""
        for field, number in numbers.items():
            limit = self.limits.texts if field in ("texts", "q") else self.limits.beam - (field == "alternatives")
            if (number or 0) > limit:
                raise Problem(422, "invalid", f"{field}: this server accepts at most {limit}.", field=field)

    def _texts_and_model(self, request: TranslateRequest) -> tuple[list[str], dict[str, Any]]:
        if (request.text is None) == (request.texts is None):
            raise Problem(422, "invalid", "Give either text or texts.", field="text")
        if request.texts is not None and (request.prefix or request.stream):
            raise Problem(422, "invalid", "prefix and stream need a single text.", field="texts")
        self.check_numbers(texts=len(request.texts or ()), beam=request.beam, n_best=request.n_best)
        if request.beam is not None and request.beam < request.n_best:
            raise Problem(422, "invalid", "beam must be at least n_best.", field="beam")
        model = self.find_text_model(request.model, request.source, request.target)
        _check_supported(request, model)
        return request.texts if request.texts is not None else [request.text or ""], model

    async def _run_health_probe(self) -> bool:
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_SECONDS):
                model = self.find_model()
                if model["reads_signals"]:  # the worker has a sound of its own
                    answer = json.loads(await self.worker.request("transcribe", model=model["name"], beam=1))
                    return bool(answer["segments"][0]["score"] > -1e29)
                fields = {"texts": [_PROBE_TEXT], "beam": 1, "is_model_input": True}
                results = await self.worker.request("translate", model=model["name"], **fields)
            return bool(results[0][0]["score"] > -1e29)
        except (Problem, TimeoutError):
            return False


def split_for(model: Mapping[str, Any], text: str, *, split: bool = True) -> SegmentedText:
    """Split a text into what a model, an entry of `/v1/info`, reads at once: sentences, or lines without `split`."""
    return split_sentences(text, lines_only=not (split and model["reads_sentences"]))


def _written_lines(text: str) -> list[str]:
    """Return the lines that are not blank: there are at least as many sentences, which take longer to find."""
    return [line for line in text.split("\n") if line.strip()]


def _keep_whole(text: str) -> SegmentedText:
    return SegmentedText((text,), ("", ""))


async def _get_service(request: Request) -> TranslationService:
    """Return the service; note whose share of the worker's time the request uses."""
    address = getattr(request.state, "client", None) or (request.client.host if request.client else "")
    current_client.set(_client_key(address))
    service: TranslationService = request.app.state.service
    return service


def _client_key(address: str) -> str:
    """Return what stands for a client: its address, or its network of IPv6, of which it has all addresses."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return address
    return str(ipaddress.ip_network(f"{address}/64", strict=False)) if version == 6 else address


Service = Annotated[TranslationService, Depends(_get_service)]  # a parameter of the routes


def _beam_of(model: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    return int(max(options.get("beam") or model["beam"], options.get("n_best", 1)))


def _search_options(request: TranslateRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in _SEARCH_FIELDS}


def _sampling_options(request: TranslateRequest) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in _SAMPLING_FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def _check_supported(request: TranslateRequest, model: dict[str, Any]) -> None:
    """Refuse options that a model of this task does not have."""
    noun = model["noun"]
    if (options := _sampling_options(request)) and not model["is_language_model"]:
        first = min(options)
        raise Problem(422, "invalid", f"{first} needs a language model; this model is a {noun}.", field=first)
    unsupported = ("prefix", "details", "beam") if model["is_language_model"] else ("prefix", "details")
    for name in () if model["raw_text_io"] and not model["is_language_model"] else unsupported:
        if getattr(request, name):
            raise Problem(422, "invalid", f"{name} is not supported by a {noun}.", field=name)


def _translate_response(model: Mapping[str, Any], translations: list[_Ranked] | bytes) -> bytes:
    """Return a response of `/v1/translate` as JSON; translations from the worker are encoded already."""
    encoded = translations if isinstance(translations, bytes) else encode_json(translations)
    return b'{"translations":%b,"model":%b}' % (encoded, encode_json(model["name"]))
