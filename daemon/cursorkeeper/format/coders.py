"""Serves the compression of record bodies: what each thread has of its own for zstd."""

from __future__ import annotations

import threading
from typing import Final

import zstandard

_WINDOW_BYTES_MAX: Final = 8 << 20


class Coders(threading.local):
    """zstd's objects are costly to make and may not be shared between threads."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.expander = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        """For this level, made once."""
        if level not in self.compressors:
            self.compressors[level] = zstandard.ZstdCompressor(level=level)
        return self.compressors[level]


CODERS: Final = Coders()
