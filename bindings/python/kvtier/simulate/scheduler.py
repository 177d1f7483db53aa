# SPDX-License-Identifier: Apache-2.0
"""What vLLM's scheduler does to a secondary tier, step by step, without a GPU.

A request waits until the longest prefix of its chunks that the tiers have is in the primary tier:
each step asks the tier, promotes what it has into rows (one load job for each request), and
computes what nobody has, which then cascades down as one store job. Requests are aborted and the
cache is reset meanwhile.

It holds the tier to the contract: each job is reported exactly once, successful keys are a subset
of the job's, rows change only while their job is under way, bytes are right, and the rows can be
released after shutdown.
"""
from __future__ import annotations

import random
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, List, Set

import numpy

from ..vllm import _standalone as plain
from .primary import ContractError, Primary


# Rows that a request has promoted may be evicted by others before it reads them; it does not try
# for ever.
_MAX_ROUNDS = 4


class Interface:
    """The names of one release of vLLM: what jobs are made of and methods are called."""

    job: Callable[..., Any] = plain.TransferJob
    rows_field = "chunk_ids"
    hit: Any = plain.LookupResult.HIT
    miss: Any = plain.LookupResult.MISS
    retry: Any = plain.LookupResult.RETRY
    context: Callable[..., Any] = plain.ReqContext
    schedule_end: Callable[..., Any] = plain.ScheduleEndContext
    on_new_request = "on_new_request"
    on_request_finished = "on_request_finished"
    get_finished = "get_finished_jobs"
    has_drain = True
    has_schedule_end = True
    row_type: Any = numpy.int64


class Calls:
    """How long the tier's calls took, in microseconds by name."""

    def __init__(self) -> None:
        self.times: Dict[str, List[float]] = {}

    def __call__(self, name: str, function: Callable, *arguments: Any) -> Any:
        began = time.perf_counter_ns()
        answer = function(*arguments)
        self.times.setdefault(name, []).append((time.perf_counter_ns() - began) / 1000)
        return answer

    def summary(self) -> Dict[str, Dict[str, float]]:
        made = {}
        for name, times in sorted(self.times.items()):
            ordered = sorted(times)
            made[name] = {
                "calls": len(ordered),
                "p50_us": round(ordered[len(ordered) // 2], 2),
                "p99_us": round(ordered[len(ordered) * 99 // 100], 2),
                "max_us": round(ordered[-1], 2),
            }
        return made


class Job:
    __slots__ = ("keys", "rows", "is_promotion", "request")

    def __init__(
        self, keys: List[bytes], rows: List[int], is_promotion: bool, request: Any
    ) -> None:
        self.keys = keys
        self.rows = rows
        self.is_promotion = is_promotion
        self.request = request


class Request:
    def __init__(self, name: str, keys: List[bytes], context: Any) -> None:
        self.name = name
        self.keys = keys
        self.context = context
        self.prefix = 0  # chunks that were found
        self.rounds = 0  # of promotions
        self.steps = 0
        self.doomed = False


class Totals:
    def __init__(self) -> None:
        self.requests = self.aborted = self.resets = self.steps = 0
        self.chunks = self.found_chunks = self.promoted_chunks = self.computed_chunks = 0
        self.stores = self.failed_stores = self.loads = self.failed_loads = 0
        self.store_bytes = self.load_bytes = 0


class Scheduler:
    """`tier` is under test, `primary` its rows. Of the requests `abort_share` are aborted if they
    have to wait; the cache is reset after each `reset_every` requests (0: never)."""

    def __init__(
        self,
        tier: Any,
        primary: Primary,
        *,
        concurrency: int = 8,
        abort_share: float = 0.0,
        reset_every: int = 0,
        seed: int = 1,
        interface: Any = Interface,
    ) -> None:
        self._tier = tier
        self._primary = primary
        self._concurrency = concurrency
        self._abort_share = abort_share
        self._reset_every = reset_every
        self._chance = random.Random(seed)
        self._is = interface
        self._jobs: Dict[int, Job] = {}
        self._next_job = 0
        self._waiting: Deque[Request] = deque()
        self._promoting: Set[bytes] = set()
        self._storing: Set[bytes] = set()
        self._finished = 0  # requests since the last reset
        self.calls = Calls()
        self.totals = Totals()

    # ---- the run ----

    def run(self, requests: Iterable[List[bytes]]) -> None:
        """Serves all, and leaves no job behind."""
        source = iter(requests)
        more = True
        while more or self._waiting or self._jobs:
            while more and len(self._waiting) < self._concurrency:
                keys = next(source, None)
                if keys is None:
                    more = False
                else:
                    self.admit(keys)
            before = self._progress()
            self.step()
            if self._progress() == before:
                # Nothing but I/O is going on: what an engine without work does, too.
                time.sleep(0.0002)

    def _progress(self) -> tuple:
        totals = self.totals
        return (
            len(self._waiting),
            totals.requests,
            totals.promoted_chunks,
            totals.stores + totals.loads,
            totals.failed_stores + totals.failed_loads,
        )

    def admit(self, keys: List[bytes]) -> Request:
        name = "request-%d" % self.totals.requests
        request = Request(name, keys, self._is.context(req_id=name))
        request.doomed = self._chance.random() < self._abort_share
        self.totals.requests += 1
        self.totals.chunks += len(keys)
        self.calls(
            "on_new_request", getattr(self._tier, self._is.on_new_request), request.context
        )
        self._waiting.append(request)
        return request

    def step(self) -> None:
        self.totals.steps += 1
        self.collect()
        served = []
        for request in list(self._waiting):
            if request.doomed and request.steps > 0:
                # Its questions, and loads perhaps, are under way.
                self.totals.aborted += 1
                served.append(request)
            elif self._serve(request):
                served.append(request)
            request.steps += 1
        for request in served:
            self._waiting.remove(request)
            self._finish(request)
        if self._is.has_schedule_end:
            self.calls("on_schedule_end", self._tier.on_schedule_end, self._is.schedule_end((), ()))
        self._finished += len(served)
        if self._reset_every and self._finished >= self._reset_every:
            self._finished = 0
            self.reset()

    def _finish(self, request: Request) -> None:
        self.calls(
            "on_request_finished",
            getattr(self._tier, self._is.on_request_finished),
            request.context,
        )

    # ---- one request ----

    def _serve(self, request: Request) -> bool:
        """Whether the request is done with: its prefix was read and the rest computed."""
        wanted: List[bytes] = []
        wait = False
        prefix = 0
        for key in request.keys:
            if key in self._primary.ready:
                prefix += 1
                continue
            if key in self._promoting:
                wait = True
                prefix += 1
                continue
            answer = self.calls("lookup", self._tier.lookup, key, request.context)
            if answer is self._is.hit:
                wanted.append(key)
                prefix += 1
            elif answer is self._is.retry:
                wait = True
                prefix += 1
            elif answer is self._is.miss:
                break
            else:
                raise ContractError("lookup: %r, expected hit, miss or retry" % (answer,))
        if wanted and request.rounds < _MAX_ROUNDS:
            promoted = self._promote(request, wanted)
            request.rounds += promoted > 0
            wait = wait or promoted > 0
        if wait:
            return False
        # What is not in the primary tier by now is computed: a hit for which no row was free too.
        self._read(request, request.keys[:prefix])
        self._compute(request, request.keys[request.prefix :])
        return True

    def _promote(self, request: Request, keys: List[bytes]) -> int:
        rows: List[int] = []
        for _ in keys:
            row = self._primary.allocate()
            if row is None:
                break
            rows.append(row)
        taken = keys[: len(rows)]
        if taken:
            self._promoting.update(taken)
            self._submit(taken, rows, True, request)
        return len(taken)

    def _read(self, request: Request, keys: List[bytes]) -> None:
        """Rows to the GPU: every byte is compared."""
        for key in keys:
            if key not in self._primary.ready:
                break  # evicted again, or its promotion failed: it is computed
            row = self._primary.use(key)
            self._primary.verify(row, key)
            self._primary.unpin(row)
            request.prefix += 1
        self.totals.found_chunks += request.prefix
        if hasattr(self._tier, "touch"):
            self.calls("touch", self._tier.touch, keys[: request.prefix], request.context)

    def _compute(self, request: Request, keys: List[bytes]) -> None:
        """New chunks come from the GPU and cascade into the tier."""
        fresh: List[bytes] = []
        rows: List[int] = []
        for key in keys:
            if key in self._primary.ready or key in self._promoting or key in self._storing:
                continue
            row = self._primary.allocate()
            if row is None:
                break
            self._primary.fill(row, key)
            self._primary.hold(key, row)
            fresh.append(key)
            rows.append(row)
        self.totals.computed_chunks += len(keys)
        if fresh:
            self._storing.update(fresh)
            self._submit(fresh, rows, False, request)

    def _submit(
        self, keys: List[bytes], rows: List[int], is_promotion: bool, request: Request
    ) -> None:
        job_id = self._next_job
        self._next_job += 1
        job = self._is.job(
            job_id=job_id,
            keys=keys,
            is_promotion=is_promotion,
            req_context=request.context,
            **{self._is.rows_field: numpy.array(rows, dtype=self._is.row_type)},
        )
        self._jobs[job_id] = Job(keys, rows, is_promotion, request)
        name = "submit_load" if is_promotion else "submit_store"
        self.calls(name, getattr(self._tier, name), job)

    # ---- results ----

    def collect(self) -> List[Any]:
        finish = getattr(self._tier, self._is.get_finished)
        results = list(self.calls("get_finished_jobs", finish))
        for result in results:
            job = self._jobs.pop(result.job_id, None)
            if job is None:
                raise ContractError("job %d: reported twice, or never submitted" % result.job_id)
            if job.is_promotion:
                self._loaded(job, result)
            else:
                self._stored(job, result)
        return results

    def _stored(self, job: Job, result: Any) -> None:
        self._storing.difference_update(job.keys)
        for row, key in zip(job.rows, job.keys):
            self._primary.verify(row, key)
            self._primary.unpin(row)
        if result.success:
            self.totals.stores += 1
            self.totals.store_bytes += len(job.keys) * self._primary.row_bytes
        else:
            self.totals.failed_stores += 1

    def _loaded(self, job: Job, result: Any) -> None:
        self._promoting.difference_update(job.keys)
        if result.success:
            good: Set[bytes] = set(job.keys)
            self.totals.loads += 1
        else:
            good = set(getattr(result, "successful_keys", None) or ())
            self.totals.failed_loads += 1
            if not good <= set(job.keys):
                raise ContractError("job %d: keys succeeded that it does not have" % result.job_id)
        for row, key in zip(job.rows, job.keys):
            if key in good:
                self._primary.verify(row, key)
                self._primary.hold(key, row)
                self._primary.unpin(row)
                self.totals.promoted_chunks += 1
                self.totals.load_bytes += self._primary.row_bytes
            else:
                self._primary.give_back(row)

    def reset(self) -> None:
        """As for new weights: nothing is under way and the primary tier is empty afterwards."""
        if not self._is.has_drain:
            return
        self._tier.drain_jobs()
        self.collect()
        if self._jobs:
            raise ContractError("%d jobs have no result after drain_jobs" % len(self._jobs))
        self._primary.clear()
        self._primary.check_free()
        self.totals.resets += 1

    def shutdown(self) -> None:
        """Nobody may touch a row any more, jobs under way or not."""
        self._tier.shutdown()
        self._primary.check_free()
        self._primary.mark_all()
        self._primary.check_all()
        self._primary.release()

    @property
    def jobs_under_way(self) -> int:
        return len(self._jobs)
