#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python package costs, for compare_python: one JSON object a line.

usage: python_bench.py calls [JOBS=3125] [LANES=4]
       python_bench.py transfer URI [NAME=VALUE]... [CHUNKS=512] [CHUNK_BYTES=2097152] [LANES=4]

calls: jobs of 64 rows of 4 KiB on the mem backend. First one at a time on an idle worker: how
long packing the keys, submitting, waiting and taking the result take; then saturated, as bench/core_bench
does it: microseconds a job.

transfer: stores, then loads chunks as `kvtier bench` does it, in jobs of 8, with as many in flight,
sleeping on the worker's descriptor. Every loaded byte is compared after the clock has stopped.
NAME=VALUE in lower case is an option of the store.
"""
import json
import mmap
import statistics
import sys
import time

import numpy

import kvtier

ROW_BYTES, JOB_KEYS, ROWS = 4096, 64, 256
JOB_CHUNKS = 8
POISON = 0xa5


def keys_of(job):
    return [b"%032d" % (job * JOB_KEYS + k) for k in range(JOB_KEYS)]


def one_at_a_time(worker, rows, indices, jobs):
    times = {"pack": [], "submit": [], "wait": [], "poll": []}
    now = time.perf_counter_ns
    for job in range(jobs):
        keys = keys_of(job)
        begin = now()
        packed = kvtier.PackedKeys.pack(keys)
        packed_at = now()
        worker.submit_store_rows(job, packed, rows, indices)
        submitted = now()
        worker.wait((job,))
        finished = now()
        (result,) = worker.poll()
        taken = now()
        if not result.ok or result.succeeded.count(1) != JOB_KEYS:
            raise SystemExit("python_bench: %r" % result)
        for name, value in (("pack", packed_at - begin), ("submit", submitted - packed_at),
                            ("wait", finished - submitted), ("poll", taken - finished)):
            times[name].append(value)
    return {name + "_us": round(statistics.median(values) / 1e3, 2)
            for name, values in times.items()}


def saturated(worker, rows, indices, jobs):
    """Microseconds a job of stores, then of loads, all of them submitted as fast as possible."""
    figures = {}
    for name, submit in (("store", worker.submit_store_rows), ("load", worker.submit_load_rows)):
        all_keys = [keys_of(job) for job in range(jobs)]
        begin, cpu, taken = time.perf_counter(), time.process_time(), 0
        for job, keys in enumerate(all_keys):
            submit(job, keys, rows, indices)
            for result in worker.poll():
                taken += 1
                if not result.ok:
                    raise SystemExit("python_bench: %r" % result)
        worker.drain()
        while taken < jobs:
            results = worker.poll()
            if not results or not all(result.ok for result in results):
                raise SystemExit("python_bench: %d of %d jobs succeeded" % (taken, jobs))
            taken += len(results)
        figures[name + "_us_per_job"] = round((time.perf_counter() - begin) * 1e6 / jobs, 1)
        figures[name + "_cpu_us_per_job"] = round((time.process_time() - cpu) * 1e6 / jobs, 1)
    return figures


def on_fresh_store(memory, lanes, measure, *arguments):
    # Made ready beforehand, as for core_bench: what is measured is not the kernel clearing pages.
    with kvtier.Store("mem:", namespace="bench", mode="row",
                      options={"reserve_mib": 2400}) as store, \
            kvtier.Worker(store, lanes=lanes, queue_chunks=1 << 20) as worker, \
            kvtier.Rows(memory, ROW_BYTES) as rows:
        return measure(worker, rows, numpy.arange(JOB_KEYS, dtype=numpy.int64), *arguments)


def calls(jobs, lanes):
    memory = mmap.mmap(-1, ROWS * ROW_BYTES)
    memory.write(bytes(i * 7 % 251 for i in range(4096)) * ROWS)
    line = {"bench": "calls", "keys": JOB_KEYS, "lanes": lanes}
    line.update(on_fresh_store(memory, lanes, one_at_a_time, jobs))
    line.update(on_fresh_store(memory, lanes, saturated, jobs))
    print(json.dumps(line))


def transfer_phase(worker, rows, submit, chunks, jobs_in_flight):
    jobs = [range(first, min(first + JOB_CHUNKS, chunks))
            for first in range(0, chunks, JOB_CHUNKS)]
    indices = [numpy.arange(job.start, job.stop, dtype=numpy.int64) for job in jobs]
    start, cpu = time.perf_counter(), time.process_time()
    next_job = done = 0
    while done < len(jobs):
        while next_job < len(jobs) and next_job - done < jobs_in_flight:
            submit(next_job, [b"%032d" % chunk for chunk in jobs[next_job]], rows,
                   indices[next_job])
            next_job += 1
        for result in worker.poll(timeout_ms=-1):
            done += 1
            if not result.ok or kvtier.Status.SKIPPED in result.statuses:
                raise SystemExit("python_bench: %r" % result)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    gigabytes = rows.row_bytes * chunks / 1e9
    return {"GBps": round(gigabytes / seconds, 4), "cpu_s_per_GB": round(cpu / gigabytes, 4)}


def transfer(uri, options, chunks, chunk_bytes, lanes):
    memory = mmap.mmap(-1, chunks * chunk_bytes)
    view = numpy.frombuffer(memory, dtype=numpy.uint64).reshape(chunks, -1)
    pattern = numpy.random.default_rng(1).integers(0, 1 << 63, chunk_bytes // 8,
                                                   dtype=numpy.uint64)
    for chunk in range(chunks):
        numpy.add(pattern, numpy.uint64(chunk), out=view[chunk])
    with kvtier.Store(uri, namespace="bench-py", mode="row", options=options) as store, \
            kvtier.Worker(store, lanes=lanes) as worker, \
            kvtier.Rows(memory, chunk_bytes) as rows:
        in_flight = max(2 * lanes, (2 * lanes * 32 + JOB_CHUNKS - 1) // JOB_CHUNKS)
        line = {"bench": "transfer", "chunks": chunks, "chunk_bytes": chunk_bytes,
                "lanes": lanes}
        line["store"] = transfer_phase(worker, rows, worker.submit_store_rows, chunks, in_flight)
        view.view(numpy.uint8).fill(POISON)
        line["load"] = transfer_phase(worker, rows, worker.submit_load_rows, chunks, in_flight)
    for chunk in range(chunks):
        if not (view[chunk] == pattern + numpy.uint64(chunk)).all():
            raise SystemExit("python_bench: chunk %d is not what was stored" % chunk)
    print(json.dumps(line))


def main(arguments):
    if not arguments or arguments[0] not in ("calls", "transfer"):
        raise SystemExit(__doc__.split("\n\n")[1])
    numbers = {"JOBS": 3125, "CHUNKS": 512, "CHUNK_BYTES": 2 << 20, "LANES": 4}
    options, plain = {}, []
    for argument in arguments[1:]:
        name, equals, value = argument.partition("=")
        if not equals:
            plain.append(argument)
        elif name in numbers:
            numbers[name] = int(value)
        else:
            options[name] = value
    if arguments[0] == "calls" and not plain:
        calls(numbers["JOBS"], numbers["LANES"])
    elif arguments[0] == "transfer" and len(plain) == 1:
        transfer(plain[0], options, numbers["CHUNKS"], numbers["CHUNK_BYTES"], numbers["LANES"])
    else:
        raise SystemExit(__doc__.split("\n\n")[1])


if __name__ == "__main__":
    main(sys.argv[1:])
