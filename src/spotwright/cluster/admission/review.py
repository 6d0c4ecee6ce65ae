"""Answer an AdmissionReview (``admission.k8s.io/v1``): JSON in, JSON out, always allowed.

The answer is pure: it depends on the review, the configurations and the objects that were looked up before. A defect in our own
code answers "allowed, unchanged" with a warning, because a denial would stop work that has nothing to do with Spotwright.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.cluster.admission.objects import Outcome
from spotwright.cluster.admission.warning_texts import as_warnings
from spotwright.manifests.yamltext.data_document import patched

__all__ = ["DEFECT", "AdmissionRequest", "BadReview", "answer", "parse_review"]

_LOG = logging.getLogger(__name__)
_API_VERSION = "admission.k8s.io/v1"

DEFECT = Outcome("defect", warnings=as_warnings(["not placed: Spotwright has failed; see the log of its controller"]))
"""The outcome where our own code has failed: the object is created as it came."""


class BadReview(ValueError):
    """The body of a request is no AdmissionReview of version v1; the sender is no API server, or a newer one."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What an API server asks: one operation on one object.

    ``data`` is the object, with its namespace filled in; ``old`` is the one that an update replaces. ``manager`` is the field
    manager that the client names (``kubectl-client-side-apply``); empty if it names none.
    """

    uid: str
    operation: str
    namespace: str
    data: Mapping[str, Any]
    subresource: str = ""
    dry_run: bool = False
    old: Mapping[str, Any] | None = None
    manager: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether an object is created or updated as a whole; everything else is allowed without a look at it."""
        updates = self.operation == "UPDATE" and self.old is not None
        return (self.operation == "CREATE" or updates) and not self.subresource and bool(self.data)


def parse_review(body: bytes) -> AdmissionRequest:
    """Read the request of a review. Raises :class:`BadReview`."""
    try:
        review = json.loads(body)
        request = review["request"]
        uid, operation = str(request["uid"]), str(request["operation"])
        version = review["apiVersion"]
    except (ValueError, TypeError, KeyError) as error:
        raise BadReview(f"expected an AdmissionReview, found {body[:80]!r}") from error
    if version != _API_VERSION:
        raise BadReview(f"expected {_API_VERSION}, found {version}")
    namespace = str(request.get("namespace") or "")
    data = request.get("object")
    data = data if isinstance(data, dict) else {}
    metadata = data.get("metadata")
    if namespace and isinstance(metadata, dict) and "namespace" not in metadata:
        data = {**data, "metadata": {**metadata, "namespace": namespace}}
    old = request.get("oldObject") if operation == "UPDATE" else None
    subresource = str(request.get("subResource") or "")
    dry_run = bool(request.get("dryRun"))
    old = old if isinstance(old, dict) else None
    options = request.get("options")
    manager = str(options.get("fieldManager") or "") if isinstance(options, dict) else ""
    return AdmissionRequest(uid, operation, namespace, data, subresource, dry_run, old, manager)


def answer(request: AdmissionRequest, admit: Callable[[AdmissionRequest], Outcome]) -> tuple[dict[str, Any], Outcome]:
    """The AdmissionReview that answers a request, as data, and the outcome for logs and metrics.

    ``admit`` decides; it is asked only about objects that are created or updated.
    """
    outcome = Outcome("no object is created")
    if request.is_decided:
        try:
            outcome = admit(request)
            patched(request.data, outcome.patch)  # an API server refuses the object with a patch that does not apply
            patch = json.dumps(list(outcome.patch)).encode() if outcome.patch else b""
            return _review(request.uid, outcome.warnings, patch), outcome
        except Exception:  # noqa: BLE001 (fail open: no defect of ours may stop the work of others)
            _LOG.exception("admission of %s failed", request.data.get("kind"))
            outcome = DEFECT
    return _review(request.uid, outcome.warnings, b""), outcome


def _review(uid: str, warnings: Sequence[str], patch: bytes) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if warnings:
        response["warnings"] = list(warnings)
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
