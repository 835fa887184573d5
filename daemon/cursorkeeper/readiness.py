"""Waiting at the start for what the daemon needs: a pod or a machine comes up in any order.

Owns: how long and how often is tried, what is logged meanwhile, and whether a gateway that answers
can work. Does not own: what is tried (`app`). Invariants: no try outlasts the limit, which is one
for all that is waited for; what a person must correct ends the start at once; nothing is waited for
in silence: the first failure is told at once, and what does not even fail after a moment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import structlog
from grpc_health.v1 import health_pb2 as pb

from cursorkeeper.core.errors import ExplainedError
from cursorkeeper_client.back_off import BackOff
from cursorkeeper_client.channels import open_channel
from cursorkeeper_client.tls import TlsFiles
from cursorkeeper_client.tls_causes import cause_of

log = structlog.get_logger("cursorkeeper")

TRY_S = 1.0
"""Of one try to find ZooKeeper: so soon is it said that something is missing."""
HEALTH_TRY_S = 3.0
"""Of one question to a gateway, which may have other things to do."""
SHORT_LIMIT_S = 30.0
"""How long a start without patience (`start_timeout_s` = 0) may take."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 1.0
"""The pause between two tries, which doubles."""
TELL_AFTER_S, TELL_INTERVAL_S = 3.0, 10.0
"""Until the first line of the log that says what is waited for, if no try has failed before; and
between two.
"""

T = TypeVar("T")


class StartError(ExplainedError):
    """The daemon cannot start. `passing`: it may come right by itself."""

    def __init__(self, message: str, remedy: str = "", *, passing: bool = False) -> None:
        super().__init__(message, remedy)
        self.passing = passing


class Patience:
    """The time that one start may wait. Made when the start begins, in its loop. `limit_s` 0: the
    short limit.
    """

    def __init__(self, limit_s: float) -> None:
        short = f"gave up after {SHORT_LIMIT_S:g} s (start_timeout_s waits longer)"
        self._gave_up = f"gave up after start_timeout_s = {limit_s:g}" if limit_s else short
        self._clock_s = asyncio.get_running_loop().time
        self._deadline_s = self._clock_s() + (limit_s or SHORT_LIMIT_S)

    async def until(self, what: str, where: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while it fails with a passing StartError. Raises StartError."""
        began_s = self._clock_s()
        waiting = _Waiting(what, where, began_s)
        back_off = BackOff(PAUSE_MIN_S, PAUSE_MAX_S, random.Random())
        while True:
            trying = asyncio.ensure_future(attempt())
            try:
                while not await self._done(trying, waiting.tell_at_s):
                    if self._left_s <= 0:
                        raise StartError(
                            f"{self._gave_up}: {waiting.problem.message}", waiting.problem.remedy
                        )
                    waiting.tell(self._clock_s(), self._left_s)
                found = trying.result()
                break
            except StartError as e:
                if not e.passing or not trying.done():
                    raise
                waiting.failed(e, self._clock_s(), self._left_s)
            finally:
                trying.cancel()
                await asyncio.gather(trying, return_exceptions=True)
            if self._left_s <= 0:
                raise StartError(
                    f"{self._gave_up}: {waiting.problem.message}", waiting.problem.remedy
                )
            await asyncio.sleep(min(self._left_s, back_off.next_s()))
        if waiting.told:
            log.info("waited", what=what, where=where, waited_s=round(self._clock_s() - began_s, 1))
        return found

    @property
    def _left_s(self) -> float:
        return self._deadline_s - self._clock_s()

    async def _done(self, trying: asyncio.Future[T], tell_at_s: float) -> bool:
        """Whether it is, before the limit and before something is to be told."""
        done, _ = await asyncio.wait(
            {trying}, timeout=max(0.0, min(self._left_s, tell_at_s - self._clock_s()))
        )
        return bool(done)


class _Waiting:
    """What is said of one thing that is waited for: its first failure at once, everything else now
    and then.
    """

    def __init__(self, what: str, where: str, now_s: float) -> None:
        self._what, self._where = what, where
        self.problem = StartError(
            f"{what} at {where} does not answer yet",
            "look whether it runs, and whether this is its address",
        )
        self.told = False
        self.tell_at_s = now_s + TELL_AFTER_S

    def failed(self, error: StartError, now_s: float, left_s: float) -> None:
        self.problem = error
        if not self.told or now_s >= self.tell_at_s:
            self.tell(now_s, left_s)

    def tell(self, now_s: float, left_s: float) -> None:
        self.told, self.tell_at_s = True, now_s + TELL_INTERVAL_S
        log.warning(
            "waiting",
            what=self._what,
            where=self._where,
            at_most_s=round(left_s, 1),
            problem=str(self.problem),
        )


async def check_serving(
    address: str, *, answers: bool = False, tls: TlsFiles | None = None, server_name: str = ""
) -> None:
    """Ask the gateway by gRPC health whether it can work: it has ZooKeeper and enough bookies.
    `answers`: that it does is enough. Raises StartError.

    One connection per question, so that no back-off of a channel delays the answer of a gateway
    that has just come.
    """
    async with open_channel(address, tls=tls, server_name=server_name) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=pb.HealthCheckRequest.SerializeToString,
            response_deserializer=pb.HealthCheckResponse.FromString,
        )
        try:
            status = (await check(pb.HealthCheckRequest(), timeout=HEALTH_TRY_S)).status
        except grpc.aio.AioRpcError as failed:
            if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
                return  # what it is then, its own answers say
            details = failed.details() or ""
            cause, remedy = cause_of(details, is_tls=tls is not None)
            said = f"{failed.code().name}, {details}"
            said = f"{cause} ({said})" if cause else said
            raise StartError(
                f"the gateway at {address} does not answer: {said}",
                remedy or "start it, or name another one",
                passing=True,
            ) from None
    if status != pb.HealthCheckResponse.SERVING and not answers:
        raise StartError(
            f"the gateway at {address} is there and cannot serve",
            "its log says whether ZooKeeper or bookies are missing",
            passing=True,
        )
