"""Waiting at the start for what the daemon needs: a pod or a machine comes up in any order.

Owns: how long and how often is tried, what is logged meanwhile, and whether a gateway that answers can work. Does not own: what
is tried (`app`). Invariants: no try outlasts the limit, which is one for all that is waited for; what a person must correct ends
the start at once; without patience (`start_timeout_s` = 0) there is one try, and its own limits count.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import structlog
from grpc_health.v1 import health_pb2 as pb

log = structlog.get_logger("cursorkeeper")

TRY_S = 1.0
"""Of one try, where it has a limit of its own: so soon is it said that something is missing."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 1.0
"""Between two tries; doubles."""
TELL_INTERVAL_S = 10.0
"""Between two lines of the log that say what is waited for."""

T = TypeVar("T")


class StartError(Exception):
    """The daemon cannot start; the message says why and what to do. `passing`: it may come right by itself."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Patience:
    """The time that one start may wait. Made when the start begins, in its loop. `limit_s` 0: one try."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._clock_s = asyncio.get_running_loop().time
        self._deadline_s = self._clock_s() + limit_s

    async def until(self, what: str, where: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while it fails with a passing StartError. Raises StartError."""
        if not self._limit_s:
            return await attempt()
        began_s = self._clock_s()
        tell_at_s, pause_s, problem = began_s, PAUSE_MIN_S, f"{what} at {where} does not answer"
        while True:
            try:
                async with asyncio.timeout_at(self._deadline_s) as limit:
                    found = await attempt()
                break
            except TimeoutError:
                if not limit.expired():
                    raise
            except StartError as e:
                if not e.passing:
                    raise
                problem = str(e)
            now_s = self._clock_s()
            left_s = self._deadline_s - now_s
            if left_s <= 0:
                raise StartError(f"gave up after start_timeout_s = {self._limit_s:g}: {problem}")
            if now_s >= tell_at_s:
                tell_at_s = now_s + TELL_INTERVAL_S
                log.info("waiting", what=what, where=where, at_most_s=round(left_s, 1), problem=problem)
            await asyncio.sleep(min(left_s, pause_s * random.uniform(0.5, 1.0)))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        if tell_at_s > began_s:
            log.info("waited", what=what, where=where, waited_s=round(self._clock_s() - began_s, 1))
        return found


async def check_serving(address: str) -> None:
    """Ask the gateway by gRPC health whether it can work: it has ZooKeeper and enough bookies. Raises StartError.

    One connection per question, so that no back-off of a channel delays the answer of a gateway that has just come.
    """
    options = [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=pb.HealthCheckRequest.SerializeToString,
            response_deserializer=pb.HealthCheckResponse.FromString,
        )
        try:
            status = (await check(pb.HealthCheckRequest(), timeout=TRY_S)).status
        except grpc.aio.AioRpcError as failed:
            if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
                return  # what it is then, its own answers say
            said = f"{failed.code().name}, {failed.details()}"
            raise StartError(
                f"the gateway at {address} does not answer: {said}. What to do: start it, or name another one", passing=True
            ) from None
    if status != pb.HealthCheckResponse.SERVING:
        raise StartError(
            f"the gateway at {address} is there and cannot serve. What to do: its log says whether ZooKeeper or bookies are missing",
            passing=True,
        )
