"""Cursor znodes as Pulsar 4.2.4 really wrote them, one per compression; no JVM is needed to read
them again.

Each holds mark-delete L:4, acked L:6, 7, 9, 63, 64 and (L+1):0, 129, batch L:11 with 1 and 63
un-acked, k=7, a=b.
"""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import cursor_info
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import Compression

RECORDED = {
    Compression.NONE: (
        1,
        "08ffffffffffffffffff0110011804220c0a0408011005120408011007220c0a0408011008120408011009220c0a040801103e12040801104022150a0d08021"
        "0ffffffffffffffffff01120408021000220e0a050802108001120508021081012a050a016b100730efc5a6e89f343a110a040801100b108280808080808080"
        "800142060a0161120162",
    ),
    Compression.LZ4: (
        6,
        "47780000000508011089012408ff0100f3040110061804220c0a04080610051204080610070e0011080e0013090e00113e0e00844022150a0d0807103e00f11"
        "9ff01120408071000220e0a050807108001120508071081012a050a016b100730c3c9a6e89f343a115f00430b1082800100900142060a0161120162",
    ),
    Compression.ZLIB: (
        11,
        "4778000000050802108901789ce2f80f038c02dc122c4a3c5c2c1cdc02ac4220921dcae300f338a13c3b30cf4149948b97834700a11d28cc23c0a0c4c7c50aa"
        "41b1885405423a3162b1763b600bbc1c953cb5ecc37b112041bc12dd0d400058c4e6c5c8c89428c4900000000ffff",
    ),
    Compression.ZSTD: (
        16,
        "477800000005080310890128b52ffd2489350300c40408ff0110101804220c0a0408101005120708093e4022150a0d081110120408111000220e0a050811108"
        "0011281012a050a016b100730e6cba6e89f343a110a0b1082800142060a01611201620a00789240b040658110368226c01d102c660a295611000be8bc0b1e",
    ),
    Compression.SNAPPY: (
        21,
        "477800000005080410890189010408ff1101340110151804220c0a040815100512010600070d0e0008050e00090d0e003e050e1c4022150a0d081610113e44f"
        "f01120408161000220e0a0508161080011201074481012a050a016b1007308ccda6e89f343a11055f0c0b1082800d01200142060a0161120162",
    ),
}


@pytest.mark.parametrize("compression", list(Compression))
def test_a_znode_of_pulsar_is_read(compression: Compression) -> None:
    first, text = RECORDED[compression]
    raw, found = cursor_info.unwrap(bytes.fromhex(text), limit_bytes=1 << 20)
    assert found == compression
    info = cursor_info.decode(raw)
    assert (info.cursors_ledger, info.mark_delete) == (-1, Position(first, 4))
    assert info.acked == {first: BitMap([6, 7, 9, 63, 64]), first + 1: BitMap([0, 129])}
    assert info.batches == {PartialKey(first, 11): BitMap([1, 63])}
    assert (info.properties, info.cursor_properties) == ({"k": 7}, {"a": "b"})
    assert cursor_info.encode(info) == raw


def test_the_zlib_stream_that_pulsar_never_ends_may_not_be_cut_short_even_so() -> None:
    value = bytes.fromhex(RECORDED[Compression.ZLIB][1])
    for cut in (1, 4, 20):
        with pytest.raises(PulsarFormatError):
            cursor_info.unwrap(value[:-cut], limit_bytes=1 << 20)
