#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long vLLM's scheduler thread spends in each call of the secondary tier, with 100 keys each.

usage: tier_calls.py [URI=mem:] [NAME=VALUE]... [ROUNDS=500] [KEYS=100]

Each round asks for new keys, stores them, loads them and ends the request, one call at a time, with
the library asleep before each, which has to be woken; then stores are submitted in a row. Needs
numpy, and kvtier in the interpreter's path (PYTHONPATH=bindings/python
KVTIER_LIBRARY=build/libkvtier.so.0.1).

"wall" is what the scheduler would see; it includes the time for which other threads, the library's
own among them, took the CPU away, which on a machine with few CPUs is most of it. "cpu" is the
calling thread's own. NAME=VALUE in lower case is an option of the store.
"""
import sys
import time

import numpy

from kvtier.simulate import Primary, spec_like, trace
from kvtier.vllm import KvTierSecondaryTier
from kvtier.vllm import _standalone as plain

ROW_BYTES = 4096


class Clock:
    def __init__(self):
        self.times = {}

    def __call__(self, name, function, *arguments):
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        answer = function(*arguments)
        wall, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - cpu
        self.times.setdefault(name, []).append((wall, cpu))
        return answer

    def show(self):
        print("%-28s %10s %10s %10s %10s" % ("us", "wall p50", "wall p99", "cpu p50", "cpu p99"))
        for name, times in self.times.items():
            columns = []
            for column in zip(*times):
                ordered = sorted(column)
                columns += [ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]]
            print("%-28s %10.1f %10.1f %10.1f %10.1f" % (name, *(c / 1000 for c in columns)))


def one_round(tier, clock, number, count):
    keys = [trace.key_of(number * count + i) for i in range(count)]
    context = plain.ReqContext("request-%d" % number)
    clock("on_new_request", tier.on_new_request, context)
    clock("lookup, new (all keys)", lambda: [tier.lookup(key, context) for key in keys])
    clock("on_schedule_end", tier.on_schedule_end)
    tier.drain_jobs()
    clock("get_finished_jobs, lookup", tier.get_finished_jobs)
    clock("lookup, known (all keys)", lambda: [tier.lookup(key, context) for key in keys])
    store = plain.TransferJob(2 * number, keys, numpy.arange(count), False, context)
    clock("submit_store", tier.submit_store, store)
    tier.drain_jobs()
    results = list(clock("get_finished_jobs, store", tier.get_finished_jobs))
    load = plain.TransferJob(2 * number + 1, keys, numpy.arange(count, 2 * count), True, context)
    clock("submit_load", tier.submit_load, load)
    tier.drain_jobs()
    results += clock("get_finished_jobs, load", tier.get_finished_jobs)
    clock("touch", tier.touch, keys, context)
    clock("on_request_finished", tier.on_request_finished, context)
    clock("get_stats", tier.get_stats)
    if [result.success for result in results] != [True, True]:
        raise SystemExit("tier_calls: round %d: %r" % (number, results))


def busy(tier, clock, first, count, jobs):
    """Jobs in a row, as an engine under load submits them: nothing sleeps, and caches are warm."""
    for number in range(first, first + jobs):
        keys = [trace.key_of(number * count + i) for i in range(count)]
        context = plain.ReqContext("request-%d" % number)
        store = plain.TransferJob(number, keys, numpy.arange(count), False, context)
        clock("submit_store, one of many", tier.submit_store, store)
    tier.drain_jobs()
    results = list(tier.get_finished_jobs())
    if len(results) != jobs or not all(result.success for result in results):
        raise SystemExit("tier_calls: %d of %d stores succeeded" % (
            sum(result.success for result in results), jobs))


def main(arguments):
    uri = next((a for a in arguments if ":" in a and "=" not in a.partition(":")[0]), "mem:")
    pairs = dict(a.split("=", 1) for a in arguments if a != uri)
    rounds, count = int(pairs.pop("ROUNDS", 500)), int(pairs.pop("KEYS", 100))
    memory = Primary(2 * count, ROW_BYTES)
    tier = KvTierSecondaryTier(spec_like("bench"), memory.view, store=uri, options=pairs)
    for number in range(20):
        one_round(tier, Clock(), number, count)
    clock = Clock()
    for number in range(20, rounds + 20):
        one_round(tier, clock, number, count)
    for burst in range(rounds // 50):
        busy(tier, clock, rounds + 20 + burst * 50, count, 50)
    tier.shutdown()
    clock.show()


if __name__ == "__main__":
    main(sys.argv[1:])
