"""Where the broker's word comes from: its admin REST, saved answers of it, or nowhere.

Owns the request, its limits, and how saved files are named. Only GET; a broker that does not own a
topic redirects to the one that does. What is wrong with one topic's answer is that topic's
InternalsError; `AdminAway` is raised only when the address does not answer at all.
"""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from cursorkeeper.assess.internals import (
    InternalsError,
    TopicInternals,
    is_internals,
    parse,
    read_json,
)
from cursorkeeper.format.pulsar import names
from cursorkeeper.problems import Kind, ProblemError

ANSWER_BYTES_MAX: Final = 512 << 20
"""Room for ten million ranges."""
TIMEOUT_S: Final = 60.0

Told = TopicInternals | None
"""A topic's answer; None: nobody was asked, or the topic is not loaded by any broker."""


class AdminAway(ProblemError):
    """The broker's address does not answer."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the broker's admin address does not answer: {why}",
            "correct --admin-url, or leave it out",
            Kind.AWAY,
        )


class Memory(Protocol):
    """Answers per topic, persistent://tenant/namespace/topic (a partition is a topic)."""

    describes: str
    """For people: what the numbers rest on."""
    exact_with: str
    """For people: what makes a lower bound exact."""
    remedy: str
    """For people: what to do about an answer that cannot be used."""

    async def topic(self, topic: str) -> Told:
        """Raises InternalsError, AdminAway."""
        ...


class Nobody:
    """Only what is stored is known."""

    describes = (
        "The numbers rest on what is stored: what brokers hold in memory was not asked, "
        "so they are lower bounds."
    )
    exact_with = "asking the brokers (--admin-url) makes it exact"
    remedy = ""

    async def topic(self, topic: str) -> Told:
        return None


class Broker:
    """`GET {url}/admin/v2/persistent/TENANT/NAMESPACE/TOPIC/internalStats`."""

    def __init__(self, url: str, token: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self._url, self._token, self._timeout_s = url.rstrip("/"), token, timeout_s
        self.describes = (
            f"The numbers compare what the brokers hold in memory (asked at {url}) "
            f"with what is stored."
        )
        self.exact_with = (
            f"no broker has these topics loaded (404 from {url}): load them, or correct the address"
        )
        self.remedy = "ask the broker again; without --admin-url only what is stored is judged"

    async def topic(self, topic: str) -> Told:
        return await asyncio.to_thread(self._get, topic)

    def _get(self, topic: str) -> Told:
        path = "/".join(quote(part, safe="") for part in topic.partition("://")[2].split("/", 2))
        request = urllib.request.Request(
            f"{self._url}/admin/v2/persistent/{path}/internalStats",
            headers={"Accept": "application/json"},
        )
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                data = answer.read(ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise InternalsError(self._refusal(error, request.full_url)) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise AdminAway(f"{self._url}: {getattr(error, 'reason', error)}") from error
        if len(data) > ANSWER_BYTES_MAX:
            raise InternalsError(f"the broker's answer is over {ANSWER_BYTES_MAX:,} bytes")
        return parse(read_json(data, "the broker's answer"))

    def _refusal(self, error: urllib.error.HTTPError, asked: str) -> str:
        said = f"the broker answers {error.code} {error.reason}"
        if not self._token or error.code not in (401, 403) or not error.url or error.url == asked:
            return said
        return (
            f"{said} at {error.url}, where a redirect led: the token is not handed on; name "
            f"that broker, or a proxy, with --admin-url"
        )


class Saved:
    """Saved answers: a file of one topic's (`only_topic`), a file {topic: answer}, or a folder
    TENANT/NAMESPACE/TOPIC.json, the topic's name URL-encoded. One topic is in memory at a time,
    unless they share a file.
    """

    describes = "The numbers compare saved answers of the brokers with what is stored."
    exact_with = Nobody.exact_with
    remedy = (
        "save `pulsar-admin topics stats-internal` of its topic again; without "
        "--internal-stats only what is stored is judged"
    )

    def __init__(self, place: Path, only_topic: str = "") -> None:
        """Raises InternalsError, OSError."""
        self._folder = place if place.is_dir() else None
        self._by_topic: dict[str, Any] = {}
        if self._folder is None:
            self._read(place, only_topic)

    def _read(self, place: Path, only_topic: str) -> None:
        value = read_json(place.read_bytes(), str(place))
        if is_internals(value):
            if not only_topic:
                raise InternalsError(
                    f"{place} holds the answer for one topic, and does not say for which: name "
                    f"the topic"
                )
            self._by_topic[only_topic] = value
        elif isinstance(value, dict):
            self._by_topic = value
        else:
            raise InternalsError(f"{place}: neither internalStats nor an object of them by topic")

    async def topic(self, topic: str) -> Told:
        if self._folder is None:
            if topic not in self._by_topic:
                raise InternalsError("the saved answers do not have this topic")
            return parse(self._by_topic[topic])
        file = self._folder / saved_name(topic)
        try:
            data = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            raise InternalsError(f"{file}: {error.strerror}") from None
        return parse(read_json(data, str(file)))


def saved_name(topic: str) -> str:
    """Where `Saved` looks for a topic's answer in its folder."""
    name = names.managed_ledger_name(topic).split("/")
    return "/".join([*name[:-2], f"{name[-1]}.json"])


def memory_of(
    admin_url: str | None, token_file: Path | None, saved: Path | None, only_topic: str
) -> Memory:
    """Who is asked for what brokers have in memory. Raises ProblemError, OSError."""
    if admin_url is not None and saved is not None:
        raise ProblemError("--admin-url and --internal-stats", "give one of them", Kind.USAGE)
    if saved is not None:
        try:
            return Saved(saved, only_topic)
        except InternalsError as error:
            raise ProblemError(
                str(error),
                "save `pulsar-admin topics stats-internal TOPIC` as it is; `assess --help` says "
                "how files are named",
                Kind.USAGE,
            ) from None
    if admin_url is None:
        return Nobody()
    if not admin_url.startswith(("http://", "https://")):
        raise ProblemError(
            f"--admin-url {admin_url}: no address of a web service",
            "write http://HOST:8080",
            Kind.USAGE,
        )
    return Broker(admin_url, token_file.read_text().strip() if token_file is not None else "")
