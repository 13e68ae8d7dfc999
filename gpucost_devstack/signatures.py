"""Verifies Signature Version 4 as AWS describes it (IAM User Guide, *Create a signed AWS API request*).

It shares no code with the clients that sign, so a client's mistake is not repeated here. AWS parses the request that
arrived and encodes it again, whatever the client signed: a comma that was sent and signed as it is does not match.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from gpucost.core.errors import GpuCostError

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_CLOCK_SKEW = timedelta(minutes=15)
_TIME = "%Y%m%dT%H%M%SZ"
_CHECKSUM_HEADER, _TOKEN_HEADER = "x-amz-content-sha256", "x-amz-security-token"
_PART = re.compile(r"\s*(Credential|SignedHeaders|Signature)=([^,\s]+)\s*")
_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)


class HttpRequest(NamedTuple):
    """A request as it arrived.

    Attributes:
        method: such as GET.
        target: path and query, as sent.
        headers: names in lower case; repeated headers joined with commas.
        body: the bytes of the body.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class SigningKey(NamedTuple):
    """The secret of an access key; temporary credentials have a session token, too."""

    secret: str
    token: str | None = None


class SignatureError(GpuCostError):
    """AWS would refuse the request.

    Attributes:
        code: AWS's error code.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Signature(NamedTuple):
    access_key: str
    scope: Sequence[str]
    """Day, region, service and `aws4_request`."""
    signed_headers: Sequence[str]
    signature: str
    time: str
    expires: timedelta | None
    """How long a presigned URL is valid; None if the signature is in the header."""


def is_signed(request: HttpRequest) -> bool:
    """Whether a request carries a signature, in its header or in its query."""
    return request.headers.get("authorization", "").startswith("AWS4-") or "X-Amz-Signature=" in request.target


def verify(
    request: HttpRequest,
    key_of: Callable[[str], SigningKey | None],
    now: datetime,
    *,
    service: str | None = None,
    region: str | None = None,
    normalizes_path: bool = True,
) -> str:
    """Verify a request's signature and return its access key.

    Args:
        request: the request.
        key_of: returns the secret of an access key, or None if the key is unknown.
        now: the server's time.
        service: the service's name in signatures; None accepts any.
        region: the service's region; None accepts any.
        normalizes_path: whether the service removes empty and relative path segments first. S3 never does.

    Raises:
        SignatureError: AWS would refuse the request; with AWS's code and message.
    """
    name, _, query = request.target.partition("?")
    parameters = [(_decoded(key), _decoded(text)) for key, _, text in _pairs(query)]
    signed = _signature_of(request, dict(parameters))
    _check_scope(signed, service, region)
    key = key_of(signed.access_key)
    token = dict(parameters).get("X-Amz-Security-Token", request.headers.get(_TOKEN_HEADER))
    if key is None or key.token != token:
        raise SignatureError("UnrecognizedClientException", "The security token included in the request is invalid.")
    _check_time(signed, now)
    is_s3 = signed.scope[2] == "s3"
    canonical_request = "\n".join(
        [
            request.method,
            _canonical_path(name, decodes=is_s3, normalizes=normalizes_path and not is_s3),
            _canonical_query([pair for pair in parameters if pair[0] != "X-Amz-Signature"]),
            *(f"{header}:{' '.join(request.headers.get(header, '').split())}" for header in signed.signed_headers),
            "",
            ";".join(signed.signed_headers),
            _payload_hash(request, signed, trusts_header=is_s3),
        ]
    )
    text = "\n".join(
        [ALGORITHM, signed.time, "/".join(signed.scope), hashlib.sha256(canonical_request.encode()).hexdigest()]
    )
    derived = f"AWS4{key.secret}".encode()
    for part in signed.scope:
        derived = _hmac(derived, part)
    if not hmac.compare_digest(_hmac(derived, text).hex(), signed.signature):
        raise SignatureError("InvalidSignatureException", _MISMATCH)
    return signed.access_key


def _signature_of(request: HttpRequest, parameters: Mapping[str, str]) -> _Signature:
    authorization = request.headers.get("authorization", "")
    if authorization:
        algorithm, _, rest = authorization.partition(" ")
        matches = [_PART.fullmatch(part) for part in rest.split(",")]
        parts = {match[1]: match[2] for match in matches if match}
        time, expires = request.headers.get("x-amz-date", request.headers.get("date", "")), None
    else:
        algorithm = parameters.get("X-Amz-Algorithm", "")
        parts = {
            name: parameters[f"X-Amz-{name}"]
            for name in ("Credential", "SignedHeaders", "Signature")
            if parameters.get(f"X-Amz-{name}")
        }
        time, seconds = parameters.get("X-Amz-Date", ""), parameters.get("X-Amz-Expires", "")
        expires = timedelta(seconds=int(seconds) if re.fullmatch(r"[0-9]{1,6}", seconds) else 0)
        if not parts and not algorithm:
            raise SignatureError("MissingAuthenticationTokenException", "Missing Authentication Token")
    missing = [name for name in ("Credential", "Signature", "SignedHeaders") if name not in parts]
    if algorithm != ALGORITHM or missing:
        needs = f"requires '{missing[0]}' parameter" if missing else f"has an unsupported algorithm '{algorithm}'"
        raise SignatureError("IncompleteSignatureException", f"Authorization header {needs}.")
    access_key, *scope = parts["Credential"].split("/")
    if len(scope) != 4 or scope[3] != "aws4_request":
        raise SignatureError(
            "IncompleteSignatureException",
            "Credential must have exactly 5 slash-delimited elements, e.g. "
            f"keyid/date/region/service/term, got '{parts['Credential']}'",
        )
    signed_headers = parts["SignedHeaders"].split(";")
    if "host" not in signed_headers:
        raise SignatureError(
            "InvalidSignatureException", "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."
        )
    return _Signature(access_key, scope, signed_headers, parts["Signature"], time, expires)


def _check_scope(signed: _Signature, service: str | None, region: str | None) -> None:
    day, signed_region, signed_service, _ = signed.scope
    if day != signed.time[:8]:
        raise SignatureError(
            "InvalidSignatureException",
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of "
            f"date from HTTP: '{day}' != '{signed.time[:8]}', from '{signed.time}'.",
        )
    if region not in (None, signed_region):
        raise SignatureError(
            "InvalidSignatureException", f"Credential should be scoped to a valid region, not '{signed_region}'."
        )
    if service not in (None, signed_service):
        raise SignatureError(
            "InvalidSignatureException", f"Credential should be scoped to correct service: '{service}'."
        )


def _check_time(signed: _Signature, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(signed.time, _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise SignatureError(
            "IncompleteSignatureException", f"Date must be in ISO-8601 'basic format'. Got '{signed.time}'."
        ) from None
    if signed_at - now > MAX_CLOCK_SKEW:
        latest = f"{now + MAX_CLOCK_SKEW:{_TIME}} ({now:{_TIME}} + 15 min.)"
        raise SignatureError(
            "InvalidSignatureException", f"Signature not yet current: {signed.time} is still later than {latest}"
        )
    if now - signed_at > (MAX_CLOCK_SKEW if signed.expires is None else signed.expires):
        earliest = now - (MAX_CLOCK_SKEW if signed.expires is None else signed.expires)
        raise SignatureError(
            "InvalidSignatureException", f"Signature expired: {signed.time} is now earlier than {earliest:{_TIME}}"
        )


def _canonical_path(path: str, *, decodes: bool, normalizes: bool) -> str:
    """Encode a path. Except for S3, this encodes it a second time: a sent `%20` becomes `%2520`."""
    if normalizes:
        segments: list[str] = []
        for segment in path.split("/"):
            if segment == "..":
                del segments[-1:]
            elif segment not in ("", "."):
                segments.append(segment)
        path = f"/{'/'.join(segments)}{'/' if segments and path.endswith('/') else ''}"
    return quote(unquote_to_bytes(path) if decodes else path, safe="/-_.~") or "/"


def _canonical_query(parameters: Sequence[tuple[str, str]]) -> str:
    encoded = sorted((quote(name, safe="-_.~"), quote(text, safe="-_.~")) for name, text in parameters)
    return "&".join(map("=".join, encoded))


def _pairs(query: str) -> list[tuple[str, str, str]]:
    return [pair.partition("=") for pair in query.split("&") if pair]


def _decoded(text: str) -> str:
    """Decode a part of a query. `+` is a space, as API Gateway reads it."""
    return unquote_plus(text, errors="surrogateescape")


def _payload_hash(request: HttpRequest, signed: _Signature, *, trusts_header: bool) -> str:
    if trusts_header:
        return request.headers.get(_CHECKSUM_HEADER, "UNSIGNED-PAYLOAD" if signed.expires is not None else "")
    return hashlib.sha256(request.body).hexdigest()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
