"""Names and paths, as Java's URLEncoder makes them."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.format.pulsar import names

ANY = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


@pytest.mark.parametrize(
    "name, encoded",
    [
        ("a b/c~*é", "a+b%2Fc%7E*%C3%A9"),
        ("plain.name-1_2", "plain.name-1_2"),
        ("a+b%", "a%2Bb%25"),
        ("€ 𝄞", "%E2%82%AC+%F0%9D%84%9E"),
        ("my-topic-partition-3", "my-topic-partition-3"),
        ("|:#?", "%7C%3A%23%3F"),
    ],
)
def test_encoding(name: str, encoded: str) -> None:
    assert names.encode_name(name) == encoded
    assert names.decode_name(encoded) == name


@given(ANY)
def test_every_name_comes_back(name: str) -> None:
    encoded = names.encode_name(name)
    assert set(encoded) <= set(string.ascii_letters + string.digits + ".-*_+%")
    assert names.decode_name(encoded) == name


@pytest.mark.parametrize("encoded", ["a b", "%zz", "%c3%a9", "é", "%FF", "a/b", "~"])
def test_what_nobody_encoded(encoded: str) -> None:
    with pytest.raises(ValueError):
        names.decode_name(encoded)


def test_paths() -> None:
    topic = "persistent://public/default/my topic"
    assert names.managed_ledger_name(topic) == "public/default/persistent/my+topic"
    assert names.topic_path(topic) == "/managed-ledgers/public/default/persistent/my+topic"
    assert (
        names.cursor_path(topic, "sub/1")
        == "/managed-ledgers/public/default/persistent/my+topic/sub%2F1"
    )
    old = "persistent://tenant/cluster/ns/a/b"
    assert names.topic_path(old) == "/managed-ledgers/tenant/cluster/ns/persistent/a%2Fb"


PART = st.text(string.ascii_letters + string.digits + "-_.=", min_size=1, max_size=6)


@given(st.lists(PART, min_size=2, max_size=3), ANY, ANY)
def test_paths_come_back(parts: list[str], local: str, subscription: str) -> None:
    if len(parts) == 2:
        local = local.replace("/", "-")
    topic = f"persistent://{'/'.join(parts)}/{local}"
    assert names.topic_of_path(names.topic_path(topic)) == topic
    assert names.topic_of_managed_ledger(names.managed_ledger_name(topic)) == topic
    assert names.cursor_of_path(names.cursor_path(topic, subscription)) == (topic, subscription)


@pytest.mark.parametrize(
    "topic",
    [
        "my-topic",
        "non-persistent://a/b/c",
        "persistent://a/b",
        "persistent://a//c",
        "persistent://a/b/",
        "",
    ],
)
def test_what_is_no_topic(topic: str) -> None:
    with pytest.raises(ValueError):
        names.topic_path(topic)


@pytest.mark.parametrize(
    "path",
    [
        "/managed-ledgers/a/b/c",
        "/ledgers/a/b/persistent/c",
        "/managed-ledgers/t/ns/segment/x/0000-ffff-1",
        "a/b/persistent/c",
        "",
    ],
)
def test_what_is_no_topics_path(path: str) -> None:
    with pytest.raises(ValueError):
        names.topic_of_path(path)


def test_a_subscription_has_a_name() -> None:
    with pytest.raises(ValueError):
        names.cursor_path("persistent://a/b/c", "")
    with pytest.raises(ValueError):
        names.cursor_of_path("/managed-ledgers/a/b/persistent/c/")
