# SPDX-License-Identifier: Apache-2.0
"""Which chunks the requests of a scheduler may expect in the store.

A request asks for a key in each step until it has a verdict. The first question queues it; what
was queued in a step goes to the library as one job at the step's end; what comes back is kept for
the request until it ends. Nothing is kept beyond that, so that a request that comes later sees
what has been stored meanwhile. A key whose store is under way is asked for again in the next step.
No request waits longer than `max_wait_s` for one key: then it is a miss for it, and the tokens are
recomputed.

Values in a request's dictionary: an int from 0 is a hit, found out when so many loads had failed;
-1 is a miss; a float is the time since when the request waits, negative when the key has to be
asked for again. Calls are never concurrent.
"""
from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

HIT, MISS, RETRY = 1, 0, 2
_MISS = -1
_FAILED_KEYS = 65536

Request = Dict[bytes, Any]


class Lookups:
    def __init__(self, max_wait_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._requests: Dict[str, Request] = {}
        self._queued_keys: List[bytes] = []
        self._queued_requests: List[Request] = []
        # Loads that failed, counted, and for each key which one: a hit that was found out before
        # is none any more.
        self._failures = 0
        self._failed: Dict[bytes, int] = {}
        self.timed_out = 0
        # Keys whose time was up before their answer came; it may still come.
        self._late = 0

    def __len__(self) -> int:
        """Keys that wait for the end of the step."""
        return len(self._queued_keys)

    def ask(self, request_id: str, key: bytes) -> int:
        """HIT, MISS or RETRY."""
        request = self._requests.get(request_id)
        if request is None:
            request = self._requests[request_id] = {}
        known = request.get(key)
        if known is None:
            request[key] = self._clock()
            self._queued_keys.append(key)
            self._queued_requests.append(request)
            return RETRY
        if type(known) is int:
            if known < 0:
                return MISS
            if not self._failed or self._failed.get(key, -1) < known:
                return HIT
            request[key] = _MISS
            return MISS
        return self._wait(request, key, known)

    def _wait(self, request: Request, key: bytes, since: float) -> int:
        if self._clock() - abs(since) > self._max_wait_s:
            request[key] = _MISS
            self.timed_out += 1
            self._late += 1
            return MISS
        if since < 0:
            request[key] = -since
            self._queued_keys.append(key)
            self._queued_requests.append(request)
        return RETRY

    def take(self) -> Tuple[List[bytes], List[Request]]:
        """What was queued: keys, each with the request that asks; a key may come more than once."""
        taken = self._queued_keys, self._queued_requests
        self._queued_keys, self._queued_requests = [], []
        return taken

    def answer(
        self, keys: List[bytes], requests: List[Request], verdicts: Sequence[int]
    ) -> None:
        """The library's answers, one for each of `keys`; RETRY is asked for again."""
        failures = self._failures
        if not self._late and RETRY not in verdicts and len(set(map(id, requests))) == 1:
            values = {HIT: failures, MISS: _MISS}
            requests[0].update(zip(keys, map(values.__getitem__, verdicts)))
            return
        for key, request, verdict in zip(keys, requests, verdicts):
            since = request[key]
            if type(since) is not float or since < 0:
                continue  # its time was up
            if verdict == HIT:
                request[key] = failures
            elif verdict == MISS:
                request[key] = _MISS
            else:
                request[key] = -since

    def invalidate(self, keys: List[bytes]) -> None:
        """A load of these has failed: no request that lives now gets a hit for them any more."""
        if len(self._failed) > _FAILED_KEYS:
            self._failed.clear()
            self._forget_hits()
        self._failed.update(dict.fromkeys(keys, self._failures))
        self._failures += 1

    def _forget_hits(self) -> None:
        """Too many have failed to remember which: every hit that a request has is none any more."""
        for request in self._requests.values():
            for key, known in request.items():
                if type(known) is int:
                    request[key] = _MISS

    def end(self, request_id: str) -> None:
        self._requests.pop(request_id, None)
        if not self._requests:
            self._failed.clear()
            self._late = 0
