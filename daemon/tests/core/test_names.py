"""Cursor names: canonical form, znode, bucket."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.names import CursorName
from cursorkeeper_client.names import worker_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def test_decision_06_the_form() -> None:
    name = CursorName.checked("persistent://tenant/ns/tópic-1.x~_", "sub|scription/ä %")
    assert name.canonical == "persistent://tenant/ns/t%C3%B3pic-1.x~_|sub%7Cscription/%C3%A4%20%25"
    assert (
        name.znode
        == "persistent%3A%2F%2Ftenant%2Fns%2Ft%C3%B3pic-1.x~_|sub%7Cscription%2F%C3%A4%20%25"
    )
    digest = hashlib.sha256(name.canonical.encode()).digest()
    assert name.bucket == digest.hex()[:3]
    assert name.record_hash == int.from_bytes(digest[:8], "little")
    assert name.path("/elsewhere") == f"/elsewhere/{name.bucket}/{name.znode}"
    assert str(name) == name.display == "persistent://tenant/ns/tópic-1.x~_|sub|scription/ä %"


@given(TEXTS, TEXTS)
def test_decision_06_a_znode_is_one_path_element_and_leads_back(
    topic: str, subscription: str
) -> None:
    name = CursorName(topic, subscription)
    assert re.fullmatch(r"[A-Za-z0-9\-_.~%|]+", name.znode)
    assert name.znode not in (".", "..")
    assert CursorName.from_znode(name.znode) == name


PLAIN = st.from_regex(r"[A-Za-z0-9_.~/:-]{1,40}", fullmatch=True)


@given(PLAIN | TEXTS, PLAIN | TEXTS)
def test_a_name_from_a_znode_is_the_name_that_was_written(topic: str, subscription: str) -> None:
    name = CursorName(topic, subscription)
    read = CursorName.from_znode(name.znode)
    for derived in ("topic", "subscription", "canonical", "znode", "bucket", "record_hash"):
        assert getattr(read, derived) == getattr(name, derived)


@pytest.mark.parametrize("znode", ["a%2fb|s", "a:b|s", "a%41b|s", "a|b|c", "a%252F|s"])
def test_a_znode_that_is_no_name_s_own_does_not_pass_for_one(znode: str) -> None:
    name = CursorName.from_znode(znode)
    assert (name.znode == znode) == (CursorName(name.topic, name.subscription).znode == znode)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_decision_06_two_cursors_are_never_one(a: str, b: str, c: str, d: str) -> None:
    one, other = CursorName(a, b), CursorName(c, d)
    assert (one == other) == (one.canonical == other.canonical) == (one.znode == other.znode)


def test_decision_06_a_bar_in_a_name_is_not_the_bar_between() -> None:
    assert CursorName("a|b", "c").znode != CursorName("a", "b|c").znode


def test_decision_06_over_1024_bytes() -> None:
    fits = CursorName.checked("t" * 1_000, "s" * 23)
    assert len(fits.canonical.encode()) == 1_024
    for topic, subscription in (("t" * 1_000, "s" * 24), ("ä" * 171, "s")):
        with pytest.raises(RefusedError, match="1024 are allowed") as refused:
            CursorName.checked(topic, subscription)
        assert refused.value.code == "NAME_TOO_LONG" and refused.value.remedy


@pytest.mark.parametrize(("topic", "subscription"), [("", "s"), ("t", "")])
def test_empty_names(topic: str, subscription: str) -> None:
    with pytest.raises(RefusedError) as refused:
        CursorName.checked(topic, subscription)
    assert refused.value.code == "BAD_MESSAGE"


def test_what_is_not_a_cursors_znode() -> None:
    with pytest.raises(ValueError, match="not a cursor"):
        CursorName.from_znode("no-bar")


@given(TEXTS, TEXTS, st.integers(1, 1 << 32))
def test_the_worker_that_a_source_finds_follows_from_the_record_hash(
    topic: str, subscription: str, workers: int
) -> None:
    found = worker_of(topic, subscription, workers)
    assert found == CursorName(topic, subscription).record_hash % workers
