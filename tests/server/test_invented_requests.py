"""D10: whatever is sent, no request reaches a stack trace, and answers are as the description of the API says."""

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


def invent(server, examples):
    """Send invented requests to every route, as many to each; return how many were sent."""
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    sent = 0
    with requests.Session() as session:
        for operation in (found.ok() for found in schema.get_all_operations()):
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                sent += invent_for(operation, mode, session, examples // 2)
    return sent


def invent_for(operation, mode, session, examples):
    """Send requests that fit the description of a route, or do not."""
    sent = 0

    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
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


def test_invented_requests_are_answered_as_described(server):
    assert invent(server, 12) > 50
    assert server.metric('requests_total{route="/v1/translate",status="5') == 0


@pytest.mark.long
def test_ten_thousand_invented_requests(start, run):
    server = start(run, "--languages", "toy=en:de")
    assert sum(invent(server, 1000) for _ in range(2)) > 10_000
    assert server.get("/healthz").status == 200
    log = server.log.read_text()
    assert "failed" not in log
    assert "died" not in log
