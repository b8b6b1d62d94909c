"""What may be asked and what is answered, as types: they check requests and describe the API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from dragoman.server.limits import Limits

_DEFAULT_LIMITS = Limits()  # what the API is described with; the limits in force are checked as well
_Name = Annotated[str, StringConstraints(max_length=256)]
_RequestText = Annotated[str, StringConstraints(max_length=_DEFAULT_LIMITS.text_characters)]
_RequestTexts = Annotated[list[_RequestText], Field(min_length=1, max_length=_DEFAULT_LIMITS.texts)]
_RequestBeam = Annotated[int, Field(ge=1, le=_DEFAULT_LIMITS.beam)]
_RequestHead = tuple[
    Literal["encoder", "decoder", "cross"], Annotated[int, Field(ge=0, le=999)], Annotated[int, Field(ge=0, le=9999)]
]


class StrictRequest(BaseModel):
    """A request: unknown fields are refused, and no value is bent into another type."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class TranslateRequest(StrictRequest):
    """One text, or several, to translate alike; or to parse, to pronounce, to go on with: what the model does."""

    text: _RequestText | None = Field(
        None, description="a text to translate; for a language model, the beginning of one"
    )
    texts: _RequestTexts | None = Field(None, description="instead of it: several")
    model: _Name | None = Field(None, description="the name of a model, as /v1/info lists them; otherwise the first")
    source: _Name | None = Field(None, description="instead of a model: the code of a language to translate from")
    target: _Name | None = Field(None, description="and of the one to translate into")
    beam: _RequestBeam | None = Field(
        None, description="hypotheses kept at each step; otherwise as the model's recipe says"
    )
    n_best: _RequestBeam = Field(1, description="translations of each text, the best first")
    prefix: _RequestText = Field("", description="what the translation of a single text has to begin with")
    details: bool = Field(False, description="tell the pieces with their places, and which words belong together")
    pictures: bool = Field(False, description="draw the outputs too, of models whose outputs can be drawn: trees")
    split: bool = Field(True, description="translate sentence by sentence; otherwise line by line")
    stream: bool = Field(False, description="send the translation of a single text while it grows, as events")
    length: int | None = Field(None, ge=1, le=2000, description="tokens that a language model writes, at most")
    temperature: float | None = Field(None, ge=0, le=10, description="how boldly it draws them; 0: the likeliest")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="draw from so many likeliest; 0: from all")
    top_p: float | None = Field(None, gt=0, le=1, description="draw from the fewest that make up this share")
    seed: int | None = Field(None, ge=0, lt=1 << 31, description="the same seed draws the same text")
    stop: Annotated[str, StringConstraints(max_length=256)] | None = Field(None, description="end before this text")

    @property
    def sampling_options(self) -> dict[str, Any]:
        """What was said about how a language model writes."""
        names = ("length", "temperature", "top_k", "top_p", "seed", "stop")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


class AttentionRequest(StrictRequest):
    """One sentence whose translation is to be shown from inside."""

    text: _RequestText = Field(description="a sentence", min_length=1)
    model: _Name | None = Field(None, description="the name of a model; otherwise the first")
    target: _RequestText | None = Field(None, description="a translation to read along, instead of the model's own")
    prefix: _RequestText = Field("", description="what the translation has to begin with")
    without: list[_RequestHead] = Field(
        [], max_length=512, description="heads to do without: kind, layer, head, from 0"
    )
    beam: _RequestBeam | None = Field(None, description="hypotheses kept at each step")
    trace: bool = Field(False, description="show the tree of hypotheses too")
    checkpoint: int | None = Field(None, ge=0, le=999_999_999, description="the step of a saved checkpoint")


class LibreTranslateRequest(BaseModel):
    """A request as LibreTranslate's clients send it; fields that it does not have are passed over."""

    model_config = ConfigDict(extra="ignore")

    q: _RequestText | _RequestTexts = Field(description="a text, or several")
    source: _Name = Field("auto", description="the code of a language, or auto")
    target: _Name = Field(description="the code of a language")
    format: Literal["text", "html"] = Field("text", description="html: tags stay where they are")
    alternatives: int = Field(0, ge=0, le=_DEFAULT_LIMITS.beam - 1, description="other translations of each text")
    api_key: str | None = Field(None, max_length=1024, description="the token, if the server asks for one")


class DetectRequest(BaseModel):
    """A text whose language is asked for."""

    model_config = ConfigDict(extra="ignore")

    q: _RequestText = Field(description="a text")
    api_key: str | None = Field(None, max_length=1024, description="the token, if the server asks for one")


class TokenSpan(BaseModel):
    """A piece of a translation, and the characters of it that the piece stands for."""

    piece: str
    start: int
    end: int


class TranslationResult(BaseModel):
    """One translation."""

    text: str
    score: float = Field(description="what translations are ranked by; of several sentences the mean")
    log_probability: float = Field(description="of several sentences the sum")
    truncated: bool = Field(description="the search had to end it")
    tokens: list[TokenSpan] | None = None
    source_words: list[tuple[int, int]] | None = Field(None, description="where each word of the text stands")
    target_words: list[tuple[int, int]] | None = Field(None, description="and each word of the translation")
    alignment: list[tuple[int, int]] | None = Field(None, description="which words of both belong together")
    pictures: list[str] | None = Field(None, description="drawings as SVG, one a line of the text that can be drawn")


class TranslateResponse(BaseModel):
    """The translations of each text, the best first."""

    translations: list[list[TranslationResult]]
    model: str


class ErrorResponse(BaseModel):
    """What is wrong, in words and as a code."""

    error: str
    code: str
    field: str | None
    request_id: str


class LibreLanguage(BaseModel):
    """A language that is translated from."""

    code: str
    name: str
    targets: list[str]


class DetectedLanguage(BaseModel):
    """A language that a text may be in."""

    confidence: float
    language: str


class LibreTranslateResponse(BaseModel):
    """A translation in LibreTranslate's shape: a list where a list was asked for."""

    translatedText: str | list[str]  # noqa: N815  their name
    alternatives: list[Any] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
