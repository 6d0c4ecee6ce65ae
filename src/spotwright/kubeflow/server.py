"""A server of Kubeflow Pipelines, used through ``kfp.Client``, with only the calls that this package needs.

``kfp.Client`` makes each request, because it supports every way to log in. It is imported when a server is opened, which takes
half a second. Runs are read as plain JSON through the same client: its models would cost seconds for a run of thousands of
tasks. Failed requests are explained to the user. Only the public part of a login is stored with a run. Output parameters come
from KFP's ML Metadata, which speaks gRPC.

Read in SDK 2.17.0 (``kfp/client/client.py``), ``kfp_server_api`` 2.17.3 and the backend (``api_converter.go``): v2beta1 has the
states and times of all nodes of the run's Workflow, without their names, messages or machines; v1beta1 of the same server still
has the whole Workflow of every run, even of runs started through v2beta1.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from spotwright.errors import InputError, SpotwrightError

__all__ = [
    "COOKIES_VARIABLE",
    "METHOD",
    "TOKEN_VARIABLE",
    "AlreadyThere",
    "CannotRead",
    "Health",
    "KfpServer",
    "Login",
    "LoginRefused",
    "NoSuchThing",
    "NotKfp",
    "ServerAway",
    "Version",
    "failure_of",
    "outputs_in",
    "read_json",
    "request_for",
]


_AWAY = frozenset({408, 429, 500, 502, 503, 504})
_OPTIONS = (
    "log in with --token-file, --cookies-file or --client-id, or set SPOTWRIGHT_KFP_TOKEN or SPOTWRIGHT_KFP_COOKIES"
)
_NO_SUCH_PATH = "Not Found"  # the gateway's message for an unknown path
_LONGEST = 300  # characters of a server's message


class ServerAway(SpotwrightError):
    """The server does not answer, or cannot now: retry later."""


class LoginRefused(InputError):
    """The server does not accept the login, or no login was given."""


class NotKfp(InputError):
    """The server is not an API of Kubeflow Pipelines, or is older than v2beta1."""


class NoSuchThing(InputError):
    """The server does not know this name or id."""


class AlreadyThere(InputError):
    """The server has something of this name already."""


def read_json(host: str, content: bytes) -> dict[str, Any]:
    """The object of an answer. Raises :class:`NotKfp` for an HTML page."""
    try:
        answer = json.loads(content or b"{}")
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NotKfp(
            f"{host}: answers with an HTML page instead of the API of Kubeflow Pipelines: the address is wrong, or it asks for"
            f" a login: {_OPTIONS}"
        )
    return answer


def failure_of(host: str, error: Exception) -> SpotwrightError:
    """The error to show for an exception of ``kfp.Client``. ``error`` comes from its REST client or from urllib3."""
    status = getattr(error, "status", None)
    if not isinstance(status, int) or status == 0:
        return _no_answer(host, error)
    message = _error_message(getattr(error, "body", None))
    if status in _AWAY:
        return ServerAway(f"{host}: cannot answer now ({status}{_said(message)})")
    if status == 401:
        return LoginRefused(f"{host}: does not accept the login (401{_said(message)}): {_OPTIONS}")
    if status == 403:
        return LoginRefused(
            f"{host}: you may not do this (403{_said(message)}): log in as another user, or name another namespace with -n"
        )
    if status == 404 and message in (None, _NO_SUCH_PATH):
        return NotKfp(
            f"{host}: does not serve the API v2beta1 of Kubeflow Pipelines (404): name the address of KFP 2.0 or later with"
            " --host"
        )
    if status == 404:
        return NoSuchThing(f"{host}: not found{_said(message)}")
    if status == 409:
        return AlreadyThere(f"{host}: already exists{_said(message)}")
    return InputError(f"{host}: refuses the request ({status}{_said(message)})")


def _no_answer(host: str, error: Exception) -> SpotwrightError:
    reason = getattr(error, "reason", None) or error
    text = str(reason) or type(reason).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return InputError(f"{host}: its certificate is not trusted: name its CA file with --ca-cert")
    return ServerAway(f"{host}: does not answer ({text.rpartition(': ')[2][:_LONGEST]})")


def _error_message(body: Any) -> str | None:
    """The server's message; ``None`` if it is not KFP's answer."""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else str(body or "")
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    if not isinstance(answer, dict) or not {"error", "message", "error_message"} & answer.keys():
        return None
    words = str(answer.get("message") or answer.get("error") or answer.get("error_message") or "")
    return " ".join(words.split())[:_LONGEST]


def _said(message: str | None) -> str:
    return f": {message}" if message else ""


TOKEN_VARIABLE = "SPOTWRIGHT_KFP_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with a bearer token."""

COOKIES_VARIABLE = "SPOTWRIGHT_KFP_COOKIES"
"""The environment variable with cookies, in the form of the header ``Cookie``."""


class Login(NamedTuple):
    """A server and a way to log in. Empty values: the defaults of ``kfp.Client``, from its variables and the kubeconfig.

    ``namespace`` is the runs'; a server for one team has none. Files are paths.
    """

    host: str = ""
    namespace: str = ""
    token_file: str = ""
    cookies_file: str = ""
    client_id: str = ""
    context: str = ""
    authority: str = ""

    def token(self) -> str:
        """The current bearer token: a file may have been renewed. Raises :class:`InputError` for a file that cannot be read."""
        return _secret(self.token_file, TOKEN_VARIABLE, "--token-file")

    def cookies(self) -> str:
        """The current cookies. Raises like :meth:`token`."""
        return _secret(self.cookies_file, COOKIES_VARIABLE, "--cookies-file")

    def to_data(self) -> dict[str, str]:
        """The login as data to store, without secrets."""
        return self._asdict()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Login:
        """The login from the result of :meth:`to_data`."""
        return cls(**{name: str(data.get(name, "")) for name in cls._fields})


def _secret(file: str, variable: str, option: str) -> str:
    if not file:
        return os.environ.get(variable, "").strip()
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option} {file}: cannot be read ({error})") from error
    if not text or "\n" in text:
        raise InputError(f"{option} {file}: expected one line with the secret")
    return text


METHOD = "/ml_metadata.MetadataStoreService/GetExecutionsByID"
"""The path of the request."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TRAILERS = 0x80  # the flag of a frame without a message
_EXECUTIONS, _ID, _CUSTOM_PROPERTIES = 1, 1, 5
_KEY, _VALUE, _STRUCT = 1, 2, 4


class CannotRead(ValueError):
    """The answer is not the store's."""


def request_for(execution_ids: Iterable[int]) -> bytes:
    """The body of a request for executions."""
    message = b"".join(bytes([_ID << 3 | _VARINT]) + _varint(each) for each in execution_ids)
    return b"\0" + struct.pack(">I", len(message)) + message


def outputs_in(answer: bytes) -> dict[int, dict[str, Any]]:
    """The output parameters of executions, by id. Raises :class:`CannotRead`."""
    try:
        found = {}
        for field, execution in _fields(_grpc_message(answer)):
            if field == _EXECUTIONS and isinstance(execution, bytes):
                number, outputs = _execution(execution)
                found[number] = outputs
    except (IndexError, struct.error, ValueError) as error:
        raise CannotRead(f"the metadata store's answer cannot be parsed ({type(error).__name__})") from error
    return found


def _grpc_message(answer: bytes) -> bytes:
    """The message in the frames of an answer; an error of gRPC is only in the trailers."""
    message, place, frames = b"", 0, 0
    while place < len(answer):
        flag, length = answer[place], struct.unpack_from(">I", answer, place + 1)[0]
        if place + 5 + length > len(answer):
            raise ValueError("a frame is truncated")
        if not flag & _TRAILERS:
            message += answer[place + 5 : place + 5 + length]
            frames += 1
        place += 5 + length
    if not frames:
        raise ValueError("no message")
    return message


def _execution(data: bytes) -> tuple[int, dict[str, Any]]:
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.struct_pb2 import Struct

    number, outputs = 0, dict[str, Any]()
    for field, value in _fields(data):
        if field == _ID and isinstance(value, int):
            number = value
        elif field == _CUSTOM_PROPERTIES and isinstance(value, bytes):
            entry = dict(_fields(value))
            if entry.get(_KEY) == b"outputs" and isinstance(entry.get(_VALUE), bytes):
                written = dict(_fields(entry[_VALUE])).get(_STRUCT, b"")
                outputs = MessageToDict(Struct.FromString(written))
    return number, outputs


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message with their values: numbers, or bytes."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _read_varint(data, place)
            yield tag >> 3, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            length, place = _read_varint(data, place)
        if length is None or place + length > len(data):
            raise ValueError("a field is truncated")
        yield tag >> 3, data[place : place + length]
        place += length


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place


T = TypeVar("T")

_TIMEOUT = (10.0, 60.0)  # seconds to connect, and without a byte of an answer
_PAGE = 100
_GRPC_WEB = {"Content-Type": "application/grpc-web+proto", "Accept": "application/grpc-web+proto", "X-Grpc-Web": "1"}
_VERSION = re.compile(r"(\d+\.\d+)\.\d+")
_SAME = 3.0  # clocks that differ by less count as equal: answers have whole seconds


class Version(NamedTuple):
    """A version of a pipeline on the server. ``is_new``: it was uploaded now."""

    pipeline_id: str
    version_id: str
    is_new: bool


class Health(NamedTuple):
    """The server's version, such as ``2.16``, and a given namespace that it does not know."""

    version: str = ""
    ignored_namespace: str = ""


class KfpServer:
    """One server with one login. ``host`` is its address, for messages."""

    def __init__(self, login: Login) -> None:
        """Connect. Raises :class:`InputError` with the fix, and :class:`ServerAway`."""
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
        """Check that the server is KFP with v2beta1 and accepts the login. Raises like the constructor.

        A server for one team ignores namespaces (seen on 2.16.1), so a given one is dropped.
        """
        health = self._read(self._client.healthzs.healthz_service_get_healthz)
        named = self.login.namespace
        if health.get("multi_user"):
            if not self.namespace:
                raise InputError(f"{self.host}: has a namespace for each team: name yours with -n")
            named = ""
        else:
            self.namespace, self.login = "", self.login._replace(namespace="")
        version = _VERSION.match(str(health.get("tag_name", "")))
        return Health(version[1] if version else "", named)

    # -- what runs are started from

    def version(self, pipeline: str, text: str, name: str) -> Version:
        """The version ``name`` of a pipeline; it is uploaded if the server does not have it yet.

        ``name`` is made from the content (:func:`spotwright.kubeflow.runs.version_name`), so equal content is one version.
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
            except (
                AlreadyThere,
                ServerAway,
            ):  # uploaded by another client meanwhile, which the backend answers with 500
                found = self._version_id(pipeline_id, name)
                if not found:
                    raise
                return Version(pipeline_id, found, is_new=False)
        return Version(pipeline_id, str(made.pipeline_version_id), is_new=True)

    def _pipeline(self, name: str) -> str:
        """The id of a pipeline, created if missing."""
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
        """Start a run and return its id. A missing experiment is created."""

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
        """The Workflow of a run from v1beta1; ``None`` if the server has none, or no longer serves v1beta1."""
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
        """The output parameters of executions, by id. Raises :class:`NotKfp` if the metadata store is not behind this address.

        The request goes to the root of the address, where KFP's UI sends it.
        """
        api = self._client.runs.run_service_get_run.__self__.api_client
        parts = urlsplit(self.host)
        answer = self._do(
            lambda: api.call_api(
                METHOD,
                "POST",
                header_params=dict(_GRPC_WEB),
                body=request_for(execution_ids),
                auth_settings=["Bearer"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=_TIMEOUT,
                _host=f"{parts.scheme}://{parts.netloc}",
            )
        )
        try:
            return outputs_in(answer.data)
        except CannotRead as error:
            raise NotKfp(f"{self.host}: {error}") from error

    def terminate(self, run_id: str) -> None:
        """Request the termination of a run. Raises :class:`InputError` for one that has ended."""
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
        """Measure the difference of the server's clock from ours, by its answers' date."""
        with contextlib.suppress(ValueError):
            ahead = parsedate_to_datetime(date).timestamp() - time.time()
            self.ahead = ahead if abs(ahead) > _SAME else 0.0

    def _do(self, request: Callable[[], T]) -> T:
        """Make a request, without the SDK's own links and tracebacks in the output."""
        from kfp_server_api import ApiException
        from urllib3.exceptions import HTTPError

        try:
            with _quiet():
                return request()
        except (ApiException, HTTPError) as error:
            raise failure_of(self.host, error) from error
        except AttributeError as error:  # its REST client decodes the missing body of a TLS error
            if isinstance(error.__context__, ApiException):
                raise failure_of(self.host, error.__context__) from error
            raise


def _client(login: Login) -> Any:
    """A ``kfp.Client``. Its health check takes 25 s without an answer, so ours comes first."""
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
    """A request of the SDK with a timeout, which most of its methods lack."""

    def limited(*arguments: Any, _request_timeout: Any = None, **options: Any) -> T:
        return request(*arguments, _request_timeout=_request_timeout or _TIMEOUT, **options)

    return limited


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the SDK's own output."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _called(name: str) -> str:
    """The filter for one name (backend ``filter.proto``)."""
    import json

    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
