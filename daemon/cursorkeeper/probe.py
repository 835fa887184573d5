"""Serves whoever asks whether a daemon or a gateway serves: one question, by gRPC's own health
protocol (grpc.health.v1).

Loads nothing that is large. The limit covers the connection and the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.socket_file import UNIX, SocketFileError, is_unix, path_of

LISTEN_VARIABLE = "CURSORKEEPER_LISTEN"
DEFAULT_ADDRESS = "127.0.0.1:7650"
"""The default of the setting `listen`; a test compares."""
ANY_HOST = ("0.0.0.0", "[::]", "::", "*")
"""Hosts that a server listens on and nobody can call."""
TIMEOUT_MAX_S = 600.0
NO_ANSWER, NO_HEALTH, UNKNOWN_SERVICE = "NO_ANSWER", "NO_HEALTH_SERVICE", "SERVICE_UNKNOWN"
REMEDIES = {
    NO_ANSWER: "start it, or name another address with --address; its own log says more",
    NO_HEALTH: "is this the address of a daemon or a gateway? --address names another one",
    UNKNOWN_SERVICE: "leave --service out to ask for the whole; gRPC reflection lists the names",
}
NOT_SERVING_REMEDY = "it is starting, stopping, or waits for what it needs: its own log says which"
SILENT = (NO_ANSWER, NO_HEALTH)


@dataclass(frozen=True, slots=True)
class Answer:
    """`status`: as grpc.health.v1 names it, or one of the words above. `message`: of the transport,
    if there was no answer. `remedy`: if that says more than the status.
    """

    address: str
    service: str
    status: str
    message: str = ""
    remedy: str = ""

    def as_error(self) -> ProblemError:
        """The error of an answer that is not SERVING."""
        what = f"{self.service} at {self.address}" if self.service else self.address
        said = f": {self.message}" if self.message else ""
        return ProblemError(
            f"{what}: {self.status}{said}",
            self.remedy or REMEDIES.get(self.status, NOT_SERVING_REMEDY),
            Kind.AWAY if self.status in SILENT else Kind.FAILED,
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """Paths of PEM files, and whose certificate is expected; empty: that of the host that is asked.
    As `TlsFiles` of the client, whose package loads numpy.
    """

    trust_certs: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def credentials(self) -> Any:
        """Raises ProblemError."""
        import grpc

        if bool(self.certificate) != bool(self.key):
            raise ProblemError(
                f"{self.certificate or self.key}: a certificate and its key belong together",
                "name both files, or neither",
                Kind.USAGE,
            )
        read = [self._read(file) for file in (self.trust_certs, self.key, self.certificate)]
        return grpc.ssl_channel_credentials(*read)

    @staticmethod
    def _read(file: str) -> bytes | None:
        try:
            return Path(file).read_bytes() if file else None
        except OSError as e:
            raise ProblemError(
                f"{file}: {e.strerror or e}",
                "make it readable for this user, or name another",
                Kind.USAGE,
            ) from e


def ask(address: str, service: str, timeout_s: float, tls: Shown | None = None) -> Answer:
    """Blocks for at most `timeout_s`. Raises ProblemError for files that cannot be read."""
    import grpc
    from grpc_health.v1 import health_pb2 as pb

    # a health check asks the machine that it names, whatever proxy the environment knows
    options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]
    if tls is not None and tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    with (
        grpc.secure_channel(address, tls.credentials(), options)
        if tls is not None
        else grpc.insecure_channel(address, options)
    ) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=pb.HealthCheckRequest.SerializeToString,
            response_deserializer=pb.HealthCheckResponse.FromString,
        )
        try:
            status = check(pb.HealthCheckRequest(service=service), timeout=timeout_s).status
        except grpc.RpcError as failed:
            status, details = _status_of(failed.code().name), failed.details() or ""
            cause, remedy = _cause_of(details, is_tls=tls is not None)
            said = f"{cause} ({details})" if cause else details
            return Answer(address, service, status, said, remedy)
    names = pb.HealthCheckResponse.ServingStatus
    return Answer(
        address, service, names.Name(status) if status in names.values() else f"STATUS_{status}"
    )


def _cause_of(details: str, *, is_tls: bool) -> tuple[str, str]:
    """What is wrong with TLS, and what to do; empty texts: nothing. The client's package is large:
    nobody loads it for a daemon that is not there.
    """
    if "failed to connect" not in details or "refused" in details:
        return "", ""
    from cursorkeeper_client.tls_causes import cause_of

    return cause_of(details, is_tls=is_tls)


def _status_of(code: str) -> str:
    """A gRPC status code in our words. Whatever is not the health service's own word is no
    answer.
    """
    return {"NOT_FOUND": UNKNOWN_SERVICE, "UNIMPLEMENTED": NO_HEALTH}.get(code, NO_ANSWER)


def address_to_ask(given: str | None, listen: str | None) -> str:
    """Where to ask: as given, else where the daemon of this environment listens. Raises
    ProblemError.
    """
    text, source = (
        (given, "--address")
        if given is not None
        else (listen, LISTEN_VARIABLE)
        if listen
        else (DEFAULT_ADDRESS, "")
    )
    if is_unix(text or ""):
        try:
            return f"{UNIX}{path_of(text or '')}"
        except SocketFileError as e:
            raise ProblemError(f"{source} = {e.message}", e.remedy, Kind.USAGE) from None
    host, colon, port = (text or "").rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65_536):
        raise ProblemError(
            f"{source} = {text!r} is not an address to ask",
            "give host:port, or unix: and a path, with --address",
            Kind.USAGE,
        )
    return f"127.0.0.1:{port}" if host in ANY_HOST else f"{host}:{port}"
