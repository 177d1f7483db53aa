# SPDX-License-Identifier: Apache-2.0
"""A tier with its rows, and jobs for it, as the tests of the tier use them."""
import os
import threading
import time

import numpy

from kvtier.simulate import Primary, spec_like
from kvtier.vllm import KvTierSecondaryTier
from kvtier.vllm import _standalone as plain

HIT, MISS, RETRY = plain.LookupResult.HIT, plain.LookupResult.MISS, plain.LookupResult.RETRY
ROW_BYTES = 4096
TIMEOUT_S = 60


def keys_of(count, seed="", group=0):
    return [
        (seed + "%d" % i).encode().ljust(32, b".") + group.to_bytes(4, "big") for i in range(count)
    ]


def context(name="request"):
    return plain.ReqContext(name)


class Scene:
    def __init__(self, rows=32, row_bytes=ROW_BYTES, spec=None, **config):
        self.memory = Primary(rows, row_bytes)
        self.tier = KvTierSecondaryTier(
            spec or spec_like(), self.memory.view, "KvTierSecondaryTier", **config
        )
        self.next_job = 0
        self.seen = set()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.tier.shutdown()
        if kind is None:
            self.memory.release()

    def rows(self, keys, first=0):
        """Fills rows with the chunks of these keys."""
        numbers = list(range(first, first + len(keys)))
        for row, key in zip(numbers, keys):
            self.memory.fill(row, key)
        return numbers

    def job(self, keys, rows, is_promotion):
        self.next_job += 1
        return plain.TransferJob(
            self.next_job, keys, numpy.array(rows), is_promotion, context("of-job")
        )

    def submit_store(self, keys, first=0):
        job = self.job(keys, self.rows(keys, first), False)
        self.tier.submit_store(job)
        return job.job_id

    def submit_load(self, keys, first=16):
        job = self.job(keys, list(range(first, first + len(keys))), True)
        self.tier.submit_load(job)
        return job.job_id

    def collect(self, count):
        """The results of as many jobs, by job; each comes once."""
        results = {}
        deadline = time.monotonic() + TIMEOUT_S
        while len(results) < count:
            assert time.monotonic() < deadline, "%d of %d results" % (len(results), count)
            for result in self.tier.get_finished_jobs():
                assert result.job_id not in self.seen, "reported twice"
                self.seen.add(result.job_id)
                results[result.job_id] = result
            self.tier.on_schedule_end()
        return results

    def finish(self, job_id):
        results = self.collect(1)
        assert list(results) == [job_id]
        return results[job_id]

    def store(self, keys, first=0):
        return self.finish(self.submit_store(keys, first))

    def load(self, keys, first=16):
        result = self.finish(self.submit_load(keys, first))
        for row, key in enumerate(keys, first):
            if result.success or key in (result.successful_keys or ()):
                self.memory.verify(row, key)
        return result

    def look_up(self, keys, request="request"):
        """The verdicts, once there are some: asked step by step."""
        asks = context(request)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            verdicts = [self.tier.lookup(key, asks) for key in keys]
            if RETRY not in verdicts:
                return verdicts
            assert time.monotonic() < deadline, "no verdict"
            self.tier.on_schedule_end()

    def end(self, request="request"):
        self.tier.on_request_finished(context(request))


class Gate:
    """While it is shut, the store's requests that a fault option names are held."""

    def __init__(self, folder):
        self.path = str(folder / "gate")
        self.shut()

    def shut(self):
        with open(self.path, "w", encoding="utf-8"):
            pass

    def open(self):
        os.unlink(self.path)


def objects_below(folder):
    """Paths of the chunks in a file store."""
    return sorted(
        os.path.join(where, name)
        for where, _, names in os.walk(str(folder))
        for name in names
        if name.endswith(".bin")
    )


def in_thread(function):
    """Runs it beside the test; the thread only records."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
