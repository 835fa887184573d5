"""What is never printed: passwords, tokens and keys in settings of Spark, in options, and in the
address of a Spark Connect server. Pure.

Invariant: when in doubt it is secret; whoever prints then says which name was left out, and where
its value belongs.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"passw|secret|token|credential|key", re.IGNORECASE)
_VALUE: Final = re.compile(r"(passw\w*|secret|token)\s*[=:]|//[^/@\s]*:[^/@\s]*@", re.IGNORECASE)
"""Values that hold further ones: options of a JVM, addresses with a user."""
_FILE: Final = "file"
SECRET_OPTIONS: Final = ("password",)
"""Of the source, in lower case."""


def is_secret(name: str, value: str = "") -> bool:
    """Whether a setting of Spark must not be printed. The name of a file may be: the secret is what
    is in it.
    """
    return (bool(_NAME.search(name)) and not name.lower().endswith(_FILE)) or bool(
        _VALUE.search(value)
    )


def masked(remote: str) -> str:
    """A Spark Connect address without its parameters: behind the first `;` is its token."""
    address, semicolon, _ = remote.partition(";")
    scheme, slashes, rest = address.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{slashes}{'...@' if at and user else at}{host}{semicolon and ';...'}"
