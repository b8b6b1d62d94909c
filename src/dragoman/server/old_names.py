"""Names of version 0.1 in the API: accepted in requests, sent beside the new ones in responses. To delete in 0.3."""

from typing import Any

DEPRECATED_AT = "@1794960000"  # value of the header `Deprecation` (RFC 9745): the date of version 0.2.0

OLD_LIMITS = {  # of `/v1/info` and `--limit`
    "answer_bytes": "response_bytes",
    "waiting": "queued_requests",
    "waiting_characters": "queued_work",  # in units of work instead of characters
    "per_client": "requests_per_client",
    "look_pieces": "attention_tokens",
}
_OLD_RESPONSE_FIELDS = {
    **OLD_LIMITS,
    # a model in `/v1/info`
    "asks": "input_hint",
    "languages": "has_language_pair",
    "plain": "raw_text_io",
    "whole": "never_split",
    "goes_on": "is_language_model",
    "longest": "max_length",
    # the document of `/v1/attention`, its steps, its alignment and the nodes of its beam
    "given": "forced_length",
    "without": "ablated_heads",
    "switchable": "can_ablate",
    "best": "top_choices",
    "chosen": "preferred",
    "about": "description",
    "state": "status",
}
_OLD_NAME_OF = {new: old for old, new in _OLD_RESPONSE_FIELDS.items()}


def add_old_names(content: dict[str, Any]) -> dict[str, Any]:
    """Return a response in which each renamed field also has its old name."""
    fields = {name: _add_to_value(value) for name, value in content.items()}
    return fields | {_OLD_NAME_OF[name]: value for name, value in fields.items() if name in _OLD_NAME_OF}


def _add_to_value(value: Any) -> Any:
    if isinstance(value, dict):
        return add_old_names(value)
    return [_add_to_value(item) for item in value] if isinstance(value, list) else value
