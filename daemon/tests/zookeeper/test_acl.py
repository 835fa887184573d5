"""Words of the setting `zookeeper_acl`, and when a node's list is as it should be."""

from __future__ import annotations

import pytest

from cursorkeeper.zookeeper.acl import (
    ADMIN,
    ALL,
    CREATOR,
    OPEN,
    Acl,
    Entry,
    User,
    digest_id,
    is_as,
    may_change,
    parse,
    user_of,
)

ME, OTHER = digest_id(b"keeper:secret"), digest_id(b"other:secret")
MINE, THEIRS = Entry(ALL, "digest", ME), Entry(ALL, "digest", OTHER)
LOGGED_IN = Entry(ALL, "sasl", "keeper")
CERTIFICATE = Entry(ALL, "x509", "CN=daemon")


def test_a_digest_is_zookeeper_s() -> None:
    """As its own DigestAuthenticationProvider makes it."""
    assert digest_id(b"super:test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
    assert MINE.who == "digest:keeper" and CERTIFICATE.who == "x509:CN=daemon"


def test_words() -> None:
    assert parse("open") == OPEN and parse("creator") == CREATOR
    assert parse(f"digest:{ME}, digest:{OTHER},digest:{ME}") == (MINE, THEIRS)
    assert parse(f"sasl:keeper,digest:{ME}") == (LOGGED_IN, MINE)


def test_a_login_and_a_digest_of_one_name_are_two_users() -> None:
    """What is for the one shuts the other out."""
    logged_in, digest = user_of("sasl", b"keeper:secret"), user_of("digest", b"keeper:secret")
    assert (logged_in.who, digest.who) == ("sasl:keeper", "digest:keeper")
    for found, user, so in (
        ((LOGGED_IN,), logged_in, True),
        ((LOGGED_IN, CERTIFICATE), logged_in, True),
        ((MINE,), logged_in, False),
        ((LOGGED_IN,), digest, False),
        ((LOGGED_IN,), None, False),
    ):
        assert is_as(found, CREATOR, user) is so
        assert may_change(found, user) is (so or (None if CERTIFICATE in found else False))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all",
        "digest:keeper:secret",
        "sasl:keeper:secret",
        f"digest:{ME},",
        f"world:{ME}",
        f"digest:a:{ME}",
    ],
)
def test_what_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"part \d is none of open, creator") as caught:
        parse(text)
    assert "secret" not in str(caught.value) and ME not in str(caught.value)


def test_there_are_not_many() -> None:
    with pytest.raises(ValueError, match="17 users, at most 16"):
        parse(",".join(f"digest:{digest_id(b'u%d:p' % number)}" for number in range(17)))


@pytest.mark.parametrize(
    ("found", "wanted", "so"),
    [
        (OPEN, OPEN, True),
        ((MINE,), OPEN, False),
        (OPEN, CREATOR, False),
        ((MINE,), CREATOR, True),
        ((CERTIFICATE, MINE), CREATOR, True),
        ((MINE, THEIRS), CREATOR, False),
        ((CERTIFICATE,), CREATOR, False),
        ((Entry(ALL - ADMIN, "digest", ME),), CREATOR, False),
        ((THEIRS, MINE), (MINE, THEIRS), True),
        ((CERTIFICATE, MINE), (MINE,), False),
        ((MINE,), (MINE, THEIRS), False),
    ],
)
def test_when_a_list_is_as_wanted(found: Acl, wanted: Acl, so: bool) -> None:
    assert is_as(found, wanted, User("digest", ME)) is so


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (OPEN, True),
        ((MINE,), True),
        ((THEIRS,), False),
        ((Entry(1, "world", "anyone"), Entry(ALL, "digest", "other:x")), False),
        ((CERTIFICATE,), None),
        ((Entry(1, "world", "anyone"),), False),
    ],
)
def test_who_may_change_one(found: Acl, may: bool | None) -> None:
    assert may_change(found, User("digest", ME)) is may
