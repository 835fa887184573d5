"""What a terminal may be given of texts from outside: names of cursors, what damaged bytes say,
errors of other systems.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """One line that a terminal only shows. Line ends, escape sequences, characters that turn what
    follows around or that nobody sees: everything that is not printed as itself is spelled out.
    """
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else _spelled(ord(c)) for c in text)
    )


def printable_json(text: str) -> str:
    """JSON of the same meaning that a terminal only shows: only its strings can hold other
    characters, and JSON spells these.
    """
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else _in_json(c) for c in text)
    )


def _in_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def _spelled(code: int) -> str:
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
