"""What is probably wrong with a connection that did not come about: serves whoever switches TLS on,
on one side first.
"""

from __future__ import annotations

NOT_CONNECTED = "failed to connect"
"""Of a stream that was there and broke, gRPC's words say nothing about TLS."""
CAUSES: tuple[tuple[str, bool, str, str], ...] = (
    ("Socket closed", False, "the other side may expect TLS", "look at its settings of TLS"),
    (
        "Socket closed",
        True,
        "the other side may want a certificate, or does not believe this one",
        "show one of an authority that it believes",
    ),
    (
        "TSI_DATA_CORRUPTED",
        True,
        "the other side wants a certificate, or does not believe this one",
        "show one of an authority that it believes",
    ),
    (
        "Hostname Verification Check failed",
        True,
        "the other side's certificate is for other names than the one that was dialled",
        "dial a name that is in it, or say one (tls_server_name, gateway_tls_server_name)",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        True,
        "the other side's certificate is not believed: it is of another authority, or its time is "
        "over",
        "name the file of its authority, or renew it",
    ),
    (
        "WRONG_VERSION_NUMBER",
        True,
        "the other side speaks plain text",
        "switch TLS on there, or off here",
    ),
)
"""What gRPC says of a connection that did not come about, whether it was dialled with TLS, what is
probably wrong, and what to do.
"""


def cause_of(details: str, *, is_tls: bool) -> tuple[str, str]:
    """What is probably wrong, and what to do; empty texts: it has nothing to do with TLS."""
    for words, of_tls, cause, remedy in CAUSES:
        if NOT_CONNECTED in details and words in details and of_tls == is_tls:
            return cause, remedy
    return "", ""
