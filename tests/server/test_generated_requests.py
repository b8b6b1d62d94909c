"""D10: whatever is sent, no request reaches a stack trace, and answers are as the description of the API says.

The short test invents the same requests every time, the long one others each time.
"""

import json
from contextlib import suppress

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

JUDGES = [
    checks.status_code_conformance, checks.content_type_conformance, checks.response_headers_conformance,
    checks.response_schema_conformance, checks.negative_data_rejection, checks.unsupported_method,
]  # fmt: skip


def invent(server, examples, *, same=False, paths=None):
    """Send invented requests to every route, or to those given, as many to each; return how many were sent."""
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    rejection = schema.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "413"]  # wrong, and too large to find out how
    sent = 0
    with requests.Session() as session:
        operations = [found.ok() for found in schema.get_all_operations()]
        for operation in (each for each in operations if paths is None or each.path in paths):
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                sent += invent_for(operation, mode, session, examples // 2, same=same)
    return sent


def invent_for(operation, mode, session, examples, *, same):
    """Send requests that fit the description of a route, or do not."""
    sent = 0

    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate], derandomize=same,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case):
        nonlocal sent
        sent += 1
        response = case.call(session=session)
        assert response.status_code < 500 or response.status_code == 503, (case.as_curl_command(), response.text)
        case.validate_response(response, checks=JUDGES)
        for leak in ("Traceback", "site-packages", ".py", "/tmp/"):
            assert leak not in response.text or response.status_code == 200

    with suppress(Unsatisfiable):  # nothing can be wrong with a request without parameters
        one()
    return sent


def test_generated_requests_are_answered_as_described(server):
    assert invent(server, 12, same=True) > 50
    assert server.metric('requests_total{route="/v1/translate",status="5') == 0


def test_generated_forms_with_recordings_are_answered_as_described(start, transcriber):
    server = start(transcriber)
    assert invent(server, 40, same=True, paths=("/v1/transcribe", "/v1/audio/transcriptions")) > 50
    assert server.metric('requests_total{route="/v1/transcribe",status="5') == 0


LONG, WIDE = "a" * 5001, "\U0008eee6" * 5001  # a character of the second takes twelve bytes in JSON


@pytest.mark.parametrize(
    ("path", "fields", "status", "field"),
    [("/v1/translate", {"texts": ["a", LONG]}, 422, "texts.1"),
     ("/translate", {"q": ["a", LONG], "target": "de"}, 400, "q")],
)  # fmt: skip
def test_one_text_that_is_too_long_is_a_reason_to_refuse_the_request(server, path, fields, status, field):
    answer = server.post(path, fields)
    assert (answer.status, answer.json()["code"]) == (status, "invalid")
    assert answer.json()["field"].startswith(field)


def test_one_text_of_a_form_that_is_too_long_is_a_reason_to_refuse_the_request(server):
    form = f"q=a&q={LONG}&target=de".encode()
    answer = server.post("/translate", form, content_type="application/x-www-form-urlencoded")
    assert (answer.status, answer.json()["code"]) == (400, "invalid")


@pytest.mark.parametrize(("path", "name"), [("/v1/translate", "texts"), ("/translate", "q")])
def test_texts_that_are_too_long_together_are_refused_by_the_size_of_the_body(server, path, name):
    """schemathesis took the 413 for an acceptance."""
    body = json.dumps({name: [WIDE] * 16, "target": "de"})
    assert len(body) > 256 << 10
    answer = server.post(path, body.encode(), content_type="application/json")
    assert (answer.status, answer.json()["code"]) == (413, "too_large")
    described = server.get("/openapi.json").json()["paths"][path]["post"]["responses"]
    assert "413" in described


@pytest.mark.long
def test_ten_thousand_generated_requests(start, run):
    server = start(run, "--languages", "toy=en:de")
    assert sum(invent(server, 1000) for _ in range(2)) > 10_000
    assert server.get("/healthz").status == 200
    log = server.log.read_text()
    assert "failed" not in log
    assert "exited" not in log
