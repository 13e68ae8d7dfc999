"""An HTTP proxy in front of the embedded AWS. It verifies signatures, and forwards what the sender's policies allow."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape, unescape

from gpucost.core.errors import GpuCostError
from gpucost_devstack.iam.authorizer import ADMINISTRATOR, Authorizer, PermissionDeniedError
from gpucost_devstack.iam.calls import AwsRequest, PermissionNeeded, calls_of
from gpucost_devstack.signatures import HttpRequest, SignatureError, SigningKey, verify

UPSTREAM_TIMEOUT_SECONDS = 120
_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_NOT_PASSED_ON = {"connection", "expect", "host", "keep-alive", "transfer-encoding"}
_AMP_WORKSPACE = re.compile(r"^/workspaces/[^/]+")
_ASSUMED_KEY = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken)>([^<]+)</")
PROTOCOL_HEADER = "x-forwarded-proto"
"""The header of load balancers. With `http`, a request counts as unencrypted. All requests are local HTTP."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    authorizer: Authorizer
    upstream: str
    others: Mapping[str, str]


class _Handler(BaseHTTPRequestHandler):
    """A client's connection, with its own connection to the upstream."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    _upstream: HTTPConnection | None = None
    _address = ""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            status, headers, answer = self._answer(body)
        except (OSError, HTTPException) as error:
            self._close_upstream()
            status, headers, answer = 502, {}, f"{self._address} does not answer: {error}".encode()
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)
        self.wfile.flush()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - names that the base class looks up

    def handle_expect_100(self) -> bool:
        """Answer `Expect: 100-continue` at once. Without the flush, S3 clients wait a second before they upload."""
        is_accepted = super().handle_expect_100()
        self.wfile.flush()
        return is_accepted

    def finish(self) -> None:
        """Close both connections."""
        super().finish()
        self._close_upstream()

    def _close_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def _answer(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        credential = _CREDENTIAL.search(headers.get("authorization", "")) or _presigned_credential(address.query)
        if credential is None:
            return _error("", self.command, 403, "MissingAuthenticationToken", "the request is not signed")
        access_key, region, service = credential.groups()
        authorizer = self.server.authorizer
        if authorizer.signing_key(access_key) is None:
            return _error(service, self.command, 403, "InvalidClientTokenId", f"the access key {access_key} is unknown")
        try:
            verify(HttpRequest(self.command, self.path, headers, body), authorizer.signing_key, datetime.now(UTC))
        except SignatureError as error:
            code = error.code if service in JSON_SERVICES or service in ("aps", "lambda") else "SignatureDoesNotMatch"
            return _error(service, self.command, 0, code, str(error))
        self._connect(self.server.others.get(service, self.server.upstream))
        role = authorizer.role(access_key)
        if role is None:
            return self._forward(body, headers)  # the administrator
        request = AwsRequest(
            service,
            region,
            role.split(":")[4],
            self.command,
            address.path,
            address.query,
            headers,
            body,
            authorizer.athena,
        )
        return self._is_authorized(role, request)

    def _is_authorized(self, role: str, request: AwsRequest) -> tuple[int, Mapping[str, str], bytes]:
        authorizer = self.server.authorizer
        try:
            calls = calls_of(request)
            if request.headers.get(PROTOCOL_HEADER) == "http":
                calls = [
                    PermissionNeeded(call.action, call.resource, (*call.context, ("aws:SecureTransport", ("false",))))
                    for call in calls
                ]
            authorizer.require(role, calls)
        except PermissionDeniedError as error:
            call = error.access.call
            message = (
                f"User: {role} is not authorized to perform: {call.action} on resource: {call.resource} "
                f"because no policy allows the {call.action} action"
            )
            return _error(request.service, self.command, 0, "", message)
        except GpuCostError as error:
            return _error(request.service, self.command, 501, "NotImplemented", str(error))
        status, headers, answer = self._forward(request.body, request.headers)
        self._record_state(request, status, answer)
        if status == 404 and calls and calls[0].action == "s3:GetObject":
            bucket = calls[0].resource.partition("/")[0]
            if not authorizer.allows(
                role, PermissionNeeded("s3:ListBucket", bucket)
            ):  # without ListBucket, S3 hides that a key does not exist
                return _error("s3", self.command, 403, "AccessDenied", "Access Denied")
        return status, headers, answer

    def _record_state(self, request: AwsRequest, status: int, answer: bytes) -> None:
        """Record state on which the permissions of later requests depend."""
        if status != 200:
            return
        if request.service == "sts" and request.operation == "AssumeRole":
            keys = dict(_ASSUMED_KEY.findall(answer.decode()))
            key = SigningKey(unescape(keys["SecretAccessKey"]), unescape(keys["SessionToken"]))
            self.server.authorizer.register(keys["AccessKeyId"], request.parameters["RoleArn"], key)
        elif request.service == "athena" and request.operation == "StartQueryExecution":
            query_id = json.loads(answer)["QueryExecutionId"]
            request.athena.workgroups[query_id] = request.parameters.get("WorkGroup", "primary")

    def _forward(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        kept = {name: value for name, value in headers.items() if name not in _NOT_PASSED_ON}
        if "authorization" in kept and "/dynamodb/" in kept["authorization"]:
            # DynamoDB Local keeps the tables of each access key apart.
            kept["authorization"] = _CREDENTIAL.sub(_as_administrator, kept["authorization"])
        kept["Host"] = headers.get("host", "")
        path = _AMP_WORKSPACE.sub("", self.path)
        response = self._send(path, body, kept)
        answer = response.read()
        passed = {name: value for name, value in response.getheaders() if name.lower() not in _NOT_PASSED_ON}
        return response.status, passed, answer

    def _send(self, path: str, body: bytes, headers: Mapping[str, str]) -> HTTPResponse:
        """Send a request. Retry once if the upstream had closed an idle connection."""
        if self._upstream is not None:
            try:
                self._upstream.request(self.command, path, body or None, dict(headers))
                return self._upstream.getresponse()
            except (ConnectionError, HTTPException):
                self._close_upstream()
        upstream = urlsplit(self._address)
        self._upstream = HTTPConnection(str(upstream.hostname), upstream.port, timeout=UPSTREAM_TIMEOUT_SECONDS)
        self._upstream.request(self.command, path, body or None, dict(headers))
        return self._upstream.getresponse()

    def _connect(self, address: str) -> None:
        if address != self._address:
            self._close_upstream()
            self._address = address

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the terminal for results."""


def _as_administrator(credential: re.Match[str]) -> str:
    return credential.group().replace(credential[1], ADMINISTRATOR, 1)


def _presigned_credential(query: str) -> re.Match[str] | None:
    credential = parse_qs(query).get("X-Amz-Credential", [""])[0]
    return _CREDENTIAL.match(f"Credential={credential}")


JSON_SERVICES = {"athena", "dynamodb", "kms", "logs", "pricing", "secretsmanager", "sqs", "ce", "glue"}
DENIED_CODES = {"sns": "AuthorizationError", "ec2": "UnauthorizedOperation"}
"""Error codes of services that answer XML. The default is `AccessDenied`."""


def _error(service: str, method: str, status: int, code: str, message: str) -> tuple[int, dict[str, str], bytes]:
    """An error response in a service's format. Status 0 means a denial."""
    text = escape(message)
    if service in JSON_SERVICES:
        code = code or "AccessDeniedException"
        headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": code}
        return status or 400, headers, json.dumps({"__type": code, "message": message}).encode()
    if service in ("aps", "lambda"):
        headers = {"Content-Type": "application/json", "x-amzn-ErrorType": code or "AccessDeniedException"}
        return status or 403, headers, json.dumps({"message": message}).encode()
    code = code or DENIED_CODES.get(service, "AccessDenied")
    if service == "s3":
        body = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>"
    elif service == "ec2":
        body = f"<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors></Response>"
    else:
        error = f"<Type>Sender</Type><Code>{code}</Code><Message>{text}</Message>"
        body = f"<ErrorResponse><Error>{error}</Error></ErrorResponse>"
    return status or 403, {"Content-Type": "text/xml"}, b"" if method == "HEAD" else body.encode()


@contextmanager
def running_authorizing_proxy(
    upstream: str, authorizer: Authorizer, others: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Check every request before it is forwarded to an upstream. Yields the URL of the proxy.

    Args:
        upstream: moto's server, DynamoDB Local, or a Prometheus that stands for AMP: its workspaces are paths
            `/workspaces/<id>` here.
        authorizer: evaluates the permissions.
        others: URLs of further services, by the service names in their signatures.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.authorizer, server.upstream, server.others = authorizer, upstream, others or {}
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
