"""The OpenAPI document describes the service: whatever is sent by it, the answer is as described, and never a 5xx."""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks

from serve.conftest import Served

EXAMPLES = int(os.environ.get("TTAPS_EXAMPLES", "5"))  # of each route; more where there is time
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
FEW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
def test_no_request_makes_it_fail(served: Served, mode: GenerationMode) -> None:
    document = served.client.get("/openapi.json").json()
    document["paths"].pop("/api/gallery")  # tested by itself: its events may come for minutes
    schema: Any = schemathesis.openapi.from_dict(document)
    routes = [route.ok() for route in schema.get_all_operations()]
    assert len(routes) == sum(map(len, document["paths"].values()))
    for route in routes:

        @FEW
        @given(case=route.as_strategy(generation_mode=mode))
        def try_it(case: Any) -> None:
            # longer than Schemathesis' 10 s: the machine may be busy
            case.call_and_validate(base_url=str(served.client.base_url), checks=CHECKS, timeout=120)

        if mode is GenerationMode.POSITIVE or route.query or route.body or route.path_parameters:
            try_it()
