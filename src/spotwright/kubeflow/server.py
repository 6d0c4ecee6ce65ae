"""A server of Kubeflow Pipelines, asked through ``kfp.Client``: what this package needs of it, and nothing else.

``kfp.Client`` brings every way to log in, so it makes each request. It is imported when a server is opened, because that takes
half a second. Runs are read as plain JSON through the same client: its models would cost seconds for a run of thousands of tasks.

Read in SDK 2.17.0 (``kfp/client/client.py``), ``kfp_server_api`` 2.17.3 and the backend (``api_converter.go``): v2beta1 has the
states and times of all nodes of the run's Workflow, without their names, messages or machines; v1beta1 of the same server still
has the whole Workflow of every run, also of runs that were started through v2beta1.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from spotwright.errors import InputError
from spotwright.kubeflow import metadata_store
from spotwright.kubeflow.failures import AlreadyThere, NoSuchThing, NotKfp, ServerAway, failure_of, read_json
from spotwright.kubeflow.login import Login

__all__ = ["Health", "KfpServer", "Version"]

T = TypeVar("T")

_TIMEOUT = (10.0, 60.0)  # seconds to connect, and without a byte of an answer
_PAGE = 100
_GRPC_WEB = {"Content-Type": "application/grpc-web+proto", "Accept": "application/grpc-web+proto", "X-Grpc-Web": "1"}
_VERSION = re.compile(r"(\d+\.\d+)\.\d+")
_SAME = 3.0  # clocks that differ by fewer seconds are taken for the same: an answer carries whole seconds


class Version(NamedTuple):
    """A version of a pipeline on the server. ``is_new``: it was uploaded now."""

    pipeline_id: str
    version_id: str
    is_new: bool


class Health(NamedTuple):
    """What a server says of itself: its version, such as ``2.16``; a namespace that was named and means nothing to it."""

    version: str = ""
    ignored_namespace: str = ""


class KfpServer:
    """One server with one login. ``host`` is its address, for messages."""

    def __init__(self, login: Login) -> None:
        """Connect. Raises :class:`InputError` with what to do, and :class:`ServerAway`."""
        self.login = login
        self._connect()

    def _connect(self) -> None:
        with _quiet():
            self._client = _client(self.login)
        api = self._client.runs.run_service_get_run.__self__.api_client
        api.rest_client.request = _with_timeout(api.rest_client.request)
        self.host = str(api.configuration.host).rstrip("/")
        self.namespace = self.login.namespace or str(self._client.get_user_namespace() or "")
        self.has_workflows = True  # until v1beta1 is found to be missing
        self.ahead = 0.0  # seconds that the server's clock is ahead of ours

    def log_in_again(self) -> None:
        """Read the token and the cookies again: they may have been renewed."""
        self._connect()

    def check(self) -> Health:
        """Ask whether the server is one of KFP with v2beta1, and takes the login. Raises like the constructor.

        A server for one team takes every namespace and looks at none (seen on 2.16.1), so one that was named is forgotten.
        """
        health = self._read(self._client.healthzs.healthz_service_get_healthz)
        named = self.login.namespace
        if health.get("multi_user"):
            if not self.namespace:
                raise InputError(f"{self.host}: has a namespace for each team: name yours with -n")
            named = ""
        else:
            self.namespace, self.login = "", self.login._replace(namespace="")
        told = _VERSION.match(str(health.get("tag_name", "")))
        return Health(told[1] if told else "", named)

    # -- what runs are started from

    def version(self, pipeline: str, text: str, name: str) -> Version:
        """The version ``name`` of a pipeline; it is uploaded if the server does not have it yet.

        ``name`` is made from the content (:func:`spotwright.kubeflow.submission.version_name`), so equal content is one version.
        """
        pipeline_id = self._pipeline(pipeline)
        found = self._version_id(pipeline_id, name)
        if found:
            return Version(pipeline_id, found, is_new=False)
        with tempfile.TemporaryDirectory(prefix="spotwright-") as folder:
            file = Path(folder) / "pipeline.yaml"
            file.write_text(text, encoding="utf-8")
            try:
                made = self._do(
                    lambda: self._client.upload_pipeline_version(
                        str(file), pipeline_version_name=name, pipeline_id=pipeline_id
                    )
                )
            except (AlreadyThere, ServerAway):  # somebody else has uploaded it meanwhile; the backend says 500 for that
                found = self._version_id(pipeline_id, name)
                if not found:
                    raise
                return Version(pipeline_id, found, is_new=False)
        return Version(pipeline_id, str(made.pipeline_version_id), is_new=True)

    def _pipeline(self, name: str) -> str:
        """The id of a pipeline, which is made if there is none of this name."""
        found = self._pipeline_id(name)
        if found:
            return found
        from kfp_server_api import V2beta1Pipeline

        pipeline = V2beta1Pipeline(display_name=name, namespace=self.namespace or None)
        try:
            made = self._do(lambda: self._client.pipelines.pipeline_service_create_pipeline(pipeline))
        except (AlreadyThere, ServerAway):
            found = self._pipeline_id(name)
            if not found:
                raise
            return found
        return str(made.pipeline_id)

    def _pipeline_id(self, name: str) -> str:
        listed = self._read(
            self._client.pipelines.pipeline_service_list_pipelines,
            filter=_called(name),
            page_size=_PAGE,
            **({"namespace": self.namespace} if self.namespace else {}),
        )
        return next((str(each["pipeline_id"]) for each in listed.get("pipelines") or ()), "")

    def _version_id(self, pipeline_id: str, name: str) -> str:
        listed = self._read(
            self._client.pipelines.pipeline_service_list_pipeline_versions,
            pipeline_id,
            filter=_called(name),
            page_size=_PAGE,
        )
        return next((str(each["pipeline_version_id"]) for each in listed.get("pipeline_versions") or ()), "")

    # -- runs

    def start(
        self, version: Version, name: str, arguments: Mapping[str, Any], *, experiment: str, service_account: str = ""
    ) -> str:
        """Start a run. Returns its id. The experiment is made if there is none of its name."""

        def started() -> Any:
            group = self._client.create_experiment(experiment, namespace=self.namespace or None)
            return self._client.run_pipeline(
                group.experiment_id,
                name,
                params=dict(arguments),
                pipeline_id=version.pipeline_id,
                version_id=version.version_id,
                service_account=service_account or None,
            )

        return str(self._do(started).run_id)

    def run(self, run_id: str) -> dict[str, Any]:
        """A run as v2beta1 has it. Raises :class:`NoSuchThing` for one that was deleted."""
        return self._read(self._client.runs.run_service_get_run, run_id)

    def workflow(self, run_id: str) -> dict[str, Any] | None:
        """The Workflow of a run as v1beta1 has it; ``None`` where the server has none, or does not serve v1beta1 any more."""
        if not self.has_workflows:
            return None
        api = self._client.runs.run_service_get_run.__self__.api_client

        def asked(**options: Any) -> Any:
            return api.call_api(
                "/apis/v1beta1/runs/{run_id}",
                "GET",
                {"run_id": run_id},
                [],
                {"Accept": "application/json"},
                auth_settings=["Bearer"],
                _return_http_data_only=True,
                **options,
            )

        try:
            answer = self._read(asked)
        except (NotKfp, NoSuchThing):
            self.has_workflows = False
            return None
        text = (answer.get("pipeline_runtime") or {}).get("workflow_manifest")
        return read_json(self.host, str(text).encode()) if text else None

    def outputs(self, execution_ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """The output parameters of executions, by id. Raises :class:`NotKfp` where the metadata store is not behind this address.

        It is asked at the root of the address, where KFP's pages ask it.
        """
        api = self._client.runs.run_service_get_run.__self__.api_client
        parts = urlsplit(self.host)
        answer = self._do(
            lambda: api.call_api(
                metadata_store.METHOD,
                "POST",
                header_params=dict(_GRPC_WEB),
                body=metadata_store.request_for(execution_ids),
                auth_settings=["Bearer"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=_TIMEOUT,
                _host=f"{parts.scheme}://{parts.netloc}",
            )
        )
        try:
            return metadata_store.outputs_in(answer.data)
        except metadata_store.CannotRead as error:
            raise NotKfp(f"{self.host}: {error}") from error

    def terminate(self, run_id: str) -> None:
        """Ask for the end of a run. Raises :class:`InputError` for one that has ended."""
        self._do(lambda: self._client.terminate_run(run_id))

    def page_of(self, run_id: str) -> str:
        """The address of the run's page in KFP's own pages."""
        return f"{self.host}/#/runs/details/{run_id}"

    # -- requests

    def _read(self, method: Callable[..., Any], *arguments: Any, **query: Any) -> dict[str, Any]:
        answer = self._do(lambda: method(*arguments, **query, _preload_content=False, _request_timeout=_TIMEOUT))
        self._compare_clocks(str(answer.headers.get("Date", "")))
        return read_json(self.host, answer.data)

    def _compare_clocks(self, date: str) -> None:
        """Learn how far the server's clock is from ours, by the second that its answers carry."""
        with contextlib.suppress(ValueError):
            ahead = parsedate_to_datetime(date).timestamp() - time.time()
            self.ahead = ahead if abs(ahead) > _SAME else 0.0

    def _do(self, request: Callable[[], T]) -> T:
        """Make a request. The SDK prints links and logs tracebacks on its own; both are ours to say."""
        from kfp_server_api import ApiException
        from urllib3.exceptions import HTTPError

        try:
            with _quiet():
                return request()
        except (ApiException, HTTPError) as error:
            raise failure_of(self.host, error) from error
        except AttributeError as error:  # its REST client decodes the body of an error of TLS, which has none
            if isinstance(error.__context__, ApiException):
                raise failure_of(self.host, error.__context__) from error
            raise


def _client(login: Login) -> Any:
    """A ``kfp.Client``. Its own look at the server's health takes 25 s where none answers, so ours comes first."""
    import kfp

    class Client(kfp.Client):  # type: ignore[misc]  # kfp carries no types
        def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:  # noqa: ARG002 - the SDK's signature
            return SimpleNamespace(multi_user=False)  # or it would write a namespace into the user's settings

    try:
        return Client(
            host=login.host or None,
            client_id=login.client_id or None,
            existing_token=login.token() or None,
            cookies=login.cookies() or None,
            ssl_ca_cert=login.authority or None,
            kube_context=login.context or None,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{login.host or 'Kubeflow Pipelines'}: cannot log in: {error}") from error


def _with_timeout(request: Callable[..., T]) -> Callable[..., T]:
    """A request of the SDK that does not wait for ever: most of its methods give no timeout."""

    def limited(*arguments: Any, _request_timeout: Any = None, **options: Any) -> T:
        return request(*arguments, _request_timeout=_request_timeout or _TIMEOUT, **options)

    return limited


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the SDK's own words from the output."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _called(name: str) -> str:
    """The filter for one name (backend ``filter.proto``)."""
    import json

    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
