#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a file tier written in Python does, as vLLM's does it, to measure kvtier against.

A pool of threads works on jobs of some blocks each. A store looks whether the file is there, makes
its folder, creates a temporary file exclusively, writes the block with one call and renames it
into place; a load opens the file and reads the block with one call into a shared buffer. No
checksum, no trailer. Files lie in 256 folders, which is cheaper than vLLM's own layout of one
folder for nearly every file.

usage: python_peer.py DIR BLOCK_BYTES BLOCKS [THREADS=16] [BLOCKS_PER_JOB=8] [O_DIRECT=1]

Prints one JSON object; "store" and "load" in it hold GBps and cpu_s_per_GB. GB is 1e9 bytes; CPU is
that of the whole process. All memory is touched before the clock starts. O_DIRECT=1 falls back to
buffered files where the folder does not take it, and "o_direct" says what was used.
"""
import itertools
import json
import mmap
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

FOLDERS = 256
# What the buffer holds before loads, so that bytes that were not read are seen.
POISON = b"\xa5"

_numbers = itertools.count()
_thread = threading.local()


def temporary(path):
    """A name beside `path` that no other thread uses."""
    if not hasattr(_thread, "suffix"):
        _thread.suffix = f"_{os.getpid()}_{next(_numbers)}.tmp"
    return path + _thread.suffix


def unlink_quietly(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def store_block(path, block, flags):
    if os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temp = temporary(path)
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o644)
        try:
            written = os.write(fd, block)
            if written != len(block):
                raise OSError(f"{temp}: {written} of {len(block)} bytes written")
        finally:
            os.close(fd)
        os.replace(temp, path)
    except BaseException:
        unlink_quietly(temp)
        raise


def load_block(path, block, flags):
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        got = os.readv(fd, [block])
        if got != len(block):
            raise OSError(f"{path}: {got} of {len(block)} bytes read")
    finally:
        os.close(fd)


def run_job(function, paths, buffer, offsets, size, flags):
    """The blocks of one job, one after the other."""
    flat = buffer.cast("B")
    if any(offset < 0 or offset + size > len(flat) for offset in offsets):
        raise ValueError("a block lies outside the buffer")
    for path, offset in zip(paths, offsets):
        function(path, flat[offset : offset + size], flags)


def takes_o_direct(folder):
    """Whether a page can be written with O_DIRECT."""
    path = os.path.join(folder, f".probe_{os.getpid()}")
    page = mmap.mmap(-1, mmap.PAGESIZE)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o600)
        try:
            return os.write(fd, page) == mmap.PAGESIZE
        finally:
            os.close(fd)
    except OSError:
        return False
    finally:
        unlink_quietly(path)


def measure(function, paths, buffer, size, threads, per_job, flags):
    count = len(paths)
    start, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(run_job, function, paths[i : i + per_job], buffer,
                        [j * size for j in range(i, min(i + per_job, count))], size, flags)
            for i in range(0, count, per_job)
        ]
        for job in jobs:
            job.result()
    seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    gigabytes = size * count / 1e9
    return {"GBps": round(gigabytes / seconds, 4), "cpu_s_per_GB": round(cpu / gigabytes, 4)}


def numbers(arguments):
    """The numeric arguments with their defaults; None when one is not a number that will do."""
    defaults = [None, None, 16, 8, 1]
    if not 2 <= len(arguments) <= len(defaults):
        return None
    try:
        values = [int(text) for text in arguments]
    except ValueError:
        return None
    values += defaults[len(values) :]
    return values if min(values[:4]) >= 1 and values[4] in (0, 1) else None


def main():
    values = numbers(sys.argv[2:])
    if values is None:
        print("usage: python_peer.py DIR BLOCK_BYTES BLOCKS [THREADS=16] [BLOCKS_PER_JOB=8] "
              "[O_DIRECT=1]", file=sys.stderr)
        return 2
    folder, (size, count, threads, per_job, direct) = sys.argv[1], values
    memory = mmap.mmap(-1, size * count)
    buffer = memoryview(memory)
    noise = os.urandom(1 << 20)
    for at in range(0, len(buffer), len(noise)):
        piece = min(len(noise), len(buffer) - at)
        buffer[at : at + piece] = noise[:piece]
    samples = [(i * size, bytes(buffer[i * size : i * size + 64])) for i in range(count)]
    os.makedirs(folder, exist_ok=True)
    direct = bool(direct) and takes_o_direct(folder)
    flags = os.O_DIRECT if direct else 0
    paths = [f"{folder}/{i % FOLDERS:03x}/{i:08x}.bin" for i in range(count)]
    result = {"tool": "python", "block": size, "blocks": count, "threads": threads,
              "blocks_per_job": per_job, "o_direct": direct}
    result["store"] = measure(store_block, paths, buffer, size, threads, per_job, flags)
    for at in range(0, len(buffer), len(noise)):
        piece = min(len(noise), len(buffer) - at)
        buffer[at : at + piece] = POISON * piece
    result["load"] = measure(load_block, paths, buffer, size, threads, per_job, flags)
    if any(bytes(buffer[at : at + len(start)]) != start for at, start in samples):
        print("python_peer.py: loaded bytes are not what was stored", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
