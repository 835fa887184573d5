"""A file of identities that cannot be used says which entry is wrong, and what to write."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from cursorkeeper.access import signed_tokens
from cursorkeeper.access.configured import callers_of
from cursorkeeper.access.identities_file import BYTES_MAX, FileProblem, parse, subject_of
from cursorkeeper.access.identity import Topics
from cursorkeeper.app import check
from cursorkeeper.demo.certificates import Authority
from cursorkeeper.settings import Settings, SettingsError, load
from daemon.tests.access.identities import Cast, digest

ROOT = Path(__file__).parents[3]
GOOD: dict[str, Any] = {"name": "a", "roles": ["source"], "token_hashes": [digest("t")]}


def file_of(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"identities": entries}).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is no JSON"),
        (b"{", "it is no JSON"),
        (b"\xff\xfe", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b" " * (BYTES_MAX + 1), f"more than {BYTES_MAX} bytes"),
        (b"{}", "identities"),
        (b'{"identities": [], "more": 1}', "more"),
        (b'{"identities": [], "identities": []}', "a member is there twice"),
        (file_of({**GOOD, "name": ""}), r"identities\[0\].name"),
        (file_of({**GOOD, "name": "a b"}), r"identities\[0\].name"),
        (file_of({**GOOD, "roles": []}), r"identities\[0\].roles"),
        (file_of({**GOOD, "roles": ["king"]}), r"king"),
        (file_of({**GOOD, "roles": ["source", "source"]}), "roles has something twice"),
        (file_of({**GOOD, "topic": ["*"]}), "topic"),
        (file_of({**GOOD, "topics": [""]}), r"topics\[0\]"),
        (file_of({**GOOD, "token_hashes": []}), "nobody can prove to be it"),
        (file_of({**GOOD, "token_hashes": ["t"]}), "a: token_hashes holds 't'"),
        (file_of({**GOOD, "token_hashes": [digest("t").upper()]}), "token_hashes holds"),
        (file_of({**GOOD, "certificates": ["broker"]}), "a: certificates holds 'broker'"),
        (file_of({**GOOD, "quotas": {"streams": 0}}), r"quotas.streams"),
        (file_of({**GOOD, "quotas": {"streams": "many"}}), r"quotas.streams"),
        (file_of({**GOOD, "quotas": {"threads": 1}}), "threads"),
        (file_of(GOOD, GOOD), "there are two of it"),
        (file_of(GOOD, {**GOOD, "name": "b"}), "b: sha256:.* is already that of a"),
        (
            file_of(
                {**GOOD, "certificates": ["CN=x,O=y"]},
                {"name": "b", "roles": ["reader"], "certificates": ["CN=x, O=y"]},
            ),
            "b: CN=x, O=y is already that of a|certificates holds",
        ),
    ],
)
def test_what_is_wrong_is_said(content: bytes, says: str) -> None:
    with pytest.raises(FileProblem, match=says) as problem:
        parse(content)
    assert problem.value.remedy


CASES = json.loads((ROOT / "testdata/identities/cases.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_a_gateway_takes_the_same_files(case: dict[str, Any]) -> None:
    """The gateway's tests have these cases, too."""
    if case["is_good"]:
        parse(case["file"].encode())
        return
    with pytest.raises(FileProblem) as problem:
        parse(case["file"].encode())
    assert problem.value.remedy


@pytest.mark.parametrize(
    ("given", "shown", "is_same"),
    [
        ("CN=b, O=Acme", "CN=b,O=Acme", True),
        ("cn=B,o=acme", "CN=b,O=Acme", True),
        ("CN=b\\, c,O=Acme", "CN=b\\, c,O=Acme", True),
        ("O=Acme,CN=b", "CN=b,O=Acme", False),
        ("CN=b", "CN=b,O=Acme", False),
        ("CN=b,O=Acme", "CN=b\\,O\\=Acme", False),
        ("UID=x+CN=y", "CN=y+UID=x", True),
    ],
)
def test_subjects_are_compared_as_names(given: str, shown: str, is_same: bool) -> None:
    known = parse(file_of({**GOOD, "certificates": [given]}))
    subject = subject_of(x509.Name.from_rfc4514_string(shown))
    assert (subject in known.certificates) is is_same


@pytest.mark.parametrize(
    ("allowed", "topic", "holds"),
    [
        ([], "persistent://a/b/c", False),
        (["*"], "persistent://a/b/c", True),
        (["persistent://a/"], "persistent://a/b/c", True),
        (["persistent://a/"], "persistent://ab/b/c", False),
        (["persistent://a/b/c"], "persistent://a/b/c", True),
        (["persistent://a/b/c"], "persistent://a/b/c-partition-12", True),
        (["persistent://a/b/c"], "persistent://a/b/c-partition-x", False),
        (["persistent://a/b/c"], "persistent://a/b/c-partition-1/d", False),
        (["persistent://a/b/c-partition-1"], "persistent://a/b/c-partition-1", True),
        (["persistent://a/b/c-partition-1"], "persistent://a/b/c-partition-2", False),
        (["persistent://a/b/c"], "persistent://a/b/cd", False),
    ],
)
def test_topics_end_where_they_end(allowed: list[str], topic: str, holds: bool) -> None:
    assert Topics(tuple(allowed)).hold(topic) is holds


def test_files_that_contradict_settings_stop_the_start(tmp_path: Path) -> None:
    cast = Cast(tmp_path)
    plain = tmp_path / "tokens.json"
    plain.write_bytes(file_of(GOOD))
    token = tmp_path / "token"
    token.write_text("t")
    key = f"file://{cast.key_file}"
    for given, says in (
        ({"identities_file": tmp_path / "none"}, "identities_file = .*: No such file"),
        ({"identities_file": plain, "source_token_file": token}, "source_token_file and identi"),
        ({"identities_file": cast.file, "token_public_key": key}, "nobody is asked for one"),
        ({"identities_file": plain, "token_public_key": str(token)}, "no public key"),
        ({"identities_file": plain, "token_secret_key": str(token)}, "it has 1 bytes"),
        ({"identities_file": plain, "token_secret_key": "file:///none"}, "No such file"),
        ({"identities_file": plain, "token_secret_key": "no base64!"}, "neither a file nor"),
        ({"identities_file": plain, "token_audience": "x"}, "belong together"),
        (
            {"identities_file": plain, "token_public_key": key, "token_secret_key": key},
            "are both given",
        ),
    ):
        settings = Settings.of(**{name: str(value) for name, value in given.items()})
        with pytest.raises(SettingsError, match=says) as problem:
            check(settings)
        assert problem.value.remedy
    cast.identities = [{**GOOD, "token_subjects": ["x"]}]
    cast.write()
    with pytest.raises(SettingsError, match="no key says whose"):
        check(Settings.of(identities_file=str(cast.file)))
    check(Settings.of(identities_file=str(cast.file), token_public_key=key))


def test_certificates_and_keys_come_from_the_brokers_own_file(tmp_path: Path) -> None:
    cast = Cast(tmp_path)
    files = Authority(tmp_path / "servers").issue("broker")
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"metadataStoreUrl=zk:127.0.0.1:1\ntlsCertificateFilePath={files.certificate}\n"
        f"tlsKeyFilePath={files.key}\ntlsTrustCertsFilePath={cast.authority.trust}\n"
        f"tlsRequireTrustedClientCertOnConnect=true\ntokenPublicKey=file://{cast.key_file}\n"
        f"tokenAudienceClaim=aud\ntokenAudience=this cluster\n"
    )
    settings = load(
        broker_conf=conf,
        flags={"tls_enabled": True, "identities_file": str(cast.file)},
        environment={},
    )
    table = callers_of(settings).table
    assert table.signed is not None and table.asks_for_certificates
    assert table.signed.subject(cast.signed().encode()) == "source"


@pytest.mark.parametrize("form", ["file:", "path", "data:", "base64", "base64 with a slash"])
def test_a_secret_key_in_every_form_of_pulsars(tmp_path: Path, form: str) -> None:
    import jwt

    secret = b"\xff" * 32 if "slash" in form else bytes(range(32))
    file = tmp_path / "secret"
    file.write_bytes(secret)
    encoded = base64.b64encode(secret).decode()
    given = {
        "file:": f"file://{file}",
        "path": str(file),
        "data:": f"data:;base64,{encoded}",
        "base64": encoded,
        "base64 with a slash": encoded,
    }[form]
    assert ("slash" in form) == encoded.startswith("/")
    found = signed_tokens.of_settings(given, "", "role", "", "")
    assert found is not None
    assert found.subject(jwt.encode({"role": "r"}, secret, "HS256").encode()) == "r"
    for claims in ({"sub": "r"}, {"role": 5}, {"role": ""}, {"role": "r", "nbf": 9e9}):
        with pytest.raises(signed_tokens.TokenProblem):
            found.subject(jwt.encode(claims, secret, "HS256").encode())
    for junk in (b"..", b"a.b.c", b"\xff.\xff.\xff", b"." * 40_000):
        with pytest.raises(signed_tokens.TokenProblem):
            found.subject(junk)
