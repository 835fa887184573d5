"""What a terminal may be given of texts from outside: names of cursors, what damaged bytes say, errors of other systems."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line that a terminal only shows. Line ends, escape sequences, characters that turn what follows around or that nobody sees:
    everything that is not printed as itself is spelled out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _spelled(ord(c)) for c in text)


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
