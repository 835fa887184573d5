"""The login with Kerberos (GSSAPI as a mechanism of SASL, RFC 4752), for operators whose ZooKeeper
wants it.

Owns the steps of the exchange, and the words for what stands in its way. Does not own carrying the
steps (`handshake`), nor the cryptography, which is the system's library of Kerberos
(`kerberos_library`). Invariants: the event loop never waits for a key distribution center; no more
than `_WAITING_MAX` threads do.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from cursorkeeper.zookeeper.errors import LoginRefused, ProtocolBroken
from cursorkeeper.zookeeper.kerberos_library import CENTER_REMEDY, LibraryContext
from cursorkeeper.zookeeper.settings import Kerberos

T = TypeVar("T")
_WAITING_MAX = 4
_PLACES = threading.BoundedSemaphore(_WAITING_MAX)
_LAYERS_BYTES = 4
_NO_LAYER = 1
_CHOICE = bytes([_NO_LAYER, 0, 0, 0])
"""No security layer, so no size of its messages, and no other name than the principal's."""


class Context(Protocol):
    """A security context with one server. Any call may wait for a key distribution center; each
    raises LoginRefused.
    """

    @property
    def is_complete(self) -> bool:
        """Whether either side knows the other."""
        ...

    def step(self, said: bytes) -> bytes:
        """What to send, if anything; at first to nothing."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """The content of a message of the server's. Raises LoginRefused if it is not its."""
        ...

    def wrap(self, content: bytes) -> bytes: ...


class KerberosLogin:
    """One login on one connection: tokens until the context is complete, then the choice of no
    security layer.
    """

    def __init__(
        self,
        asked: Kerberos,
        host: str,
        limit_s: float,
        opened: Callable[[Kerberos, str], Context] = LibraryContext,
    ) -> None:
        """`limit_s`: of the whole wait for a key distribution center in one step."""
        self._asked, self._host, self._limit_s, self._opened = asked, host, limit_s, opened
        self._context: Context | None = None
        self._has_chosen = False

    async def answer(self, said: bytes) -> bytes | None:
        if self._has_chosen:
            if said:
                raise ProtocolBroken(f"the server goes on after the login: {said[:40]!r}")
            return None
        try:
            async with asyncio.timeout(self._limit_s):
                return await _beside(partial(self._answer, said))
        except TimeoutError:
            raise LoginRefused(
                f"no key distribution center answered within {self._limit_s:.0f} s", CENTER_REMEDY
            ) from None

    def _answer(self, said: bytes) -> bytes:
        if self._context is None:
            self._context = self._opened(self._asked, self._host)
        if not self._context.is_complete:
            return self._context.step(said)
        offered = self._context.unwrap(said)
        if len(offered) != _LAYERS_BYTES:
            raise ProtocolBroken(f"the server offers no security layers: {offered[:40]!r}")
        if not offered[0] & _NO_LAYER:
            raise LoginRefused(
                f"the server wants a security layer ({offered[0]}), and none alone is offered",
                "let its login offer the quality auth (javax.security.sasl.qop), and use TLS",
            )
        self._has_chosen = True
        return self._context.wrap(_CHOICE)

    def refused(self, where: str, *, has_ended: bool) -> LoginRefused:
        done = "ended" if has_ended else "refuses"
        return LoginRefused(
            f"{where} {done} the login of {self._asked.principal!r} with Kerberos "
            f"(zookeeper_sasl_principal)",
            "look into the server's log: it may have no login with Kerberos, another key than the "
            "key distribution center has for it (write its keytab again), or rules that keep this "
            "principal out",
        )


async def _beside(call: Callable[[], T]) -> T:
    """In a thread that nobody waits for at the end: the library asks a silent center for as long as
    it likes.
    """
    if not _PLACES.acquire(blocking=False):
        raise LoginRefused(
            f"{_WAITING_MAX} logins wait for a key distribution center still", CENTER_REMEDY
        )
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(how: Callable[[], None]) -> None:
        if not answer.done():
            how()

    def run() -> None:
        try:
            how = partial(answer.set_result, call())
        except Exception as failure:
            how = partial(answer.set_exception, failure)
        finally:
            _PLACES.release()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(tell, how)

    try:
        threading.Thread(target=run, name="kerberos", daemon=True).start()
    except BaseException as e:
        _PLACES.release()
        raise LoginRefused(
            f"no thread for the login with Kerberos: {e}", "let the daemon have more threads"
        ) from None
    return await answer
