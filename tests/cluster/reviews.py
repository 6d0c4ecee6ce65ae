"""AdmissionReviews as an API server sends them."""

from __future__ import annotations

import json
from typing import Any


def a_review(data: dict[str, Any], **request: Any) -> bytes:
    given = {"uid": "7", "operation": "CREATE", "namespace": "team-a", "object": data, **request}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": given}).encode()
