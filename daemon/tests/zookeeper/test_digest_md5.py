"""The login DIGEST-MD5: the example of RFC 2831, and servers that say what makes no sense."""

from __future__ import annotations

import pytest

from cursorkeeper.zookeeper import digest_md5
from cursorkeeper.zookeeper.errors import AccessDenied, ProtocolBroken

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)


def test_the_example_of_the_rfc() -> None:
    made = digest_md5.answer(
        CHALLENGE, "chris", "secret", b"OA6MHXh6VqTrRk", b"imap/elwood.innosoft.com"
    )
    said = digest_md5.directives(made.response)
    assert said[b"response"] == b"d388dad90d4bbd760a152321f2143af7"
    assert (said[b"username"], said[b"nc"], said[b"qop"]) == (b"chris", b"00000001", b"auth")
    digest_md5.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd", made)
    for wrong in (b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b"", b"rspauth="):
        with pytest.raises(AccessDenied, match="does not know the password"):
            digest_md5.check(wrong, made)


def test_names_with_quotes_stay_one_word() -> None:
    made = digest_md5.answer(CHALLENGE, 'a"b,c\\d=e', "p", b"n")
    assert digest_md5.directives(made.response)[b"username"] == b'a"b,c\\d=e'


@pytest.mark.parametrize(
    ("challenge", "error"),
    [
        (b"", ProtocolBroken),
        (b"nonsense", ProtocolBroken),
        (b'realm="a', ProtocolBroken),
        (b"\xff\xfe=,,,", ProtocolBroken),
        (b"algorithm=md5-sess", ProtocolBroken),
        (b'nonce="n",algorithm=sha-256', ProtocolBroken),
        (b'nonce="n",algorithm=md5-sess,qop="auth-conf"', AccessDenied),
    ],
)
def test_what_cannot_be_answered_is_said(challenge: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        digest_md5.answer(challenge, "u", "p", b"n")
