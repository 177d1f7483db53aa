# SPDX-License-Identifier: Apache-2.0
"""Workers: jobs that move chunks, and their completions."""
from __future__ import annotations

import ctypes
import select
import weakref
from array import array
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from . import _abi
from ._handle import Handle, deadline, finalize, slice_ms
from .device import Device
from .errors import Code, ConflictError, InvalidArgumentError
from .files import FileOps, IOCompletion, files_in_flight, submit_files
from .keys import Groups, Keys, as_packed
from .memory import Numbers, Ready, Rows, address_of, words, writable_view
from .results import Result, take_result
from .stats import Stats
from .store import Store, log_hooks
from .transfer import Transfer

_MAX_JOB_ID = (1 << 64) - 1
_EAGAIN, _ETIMEDOUT = int(Code.EAGAIN), int(Code.ETIMEDOUT)
_LOOKUP_PREFIX, _LOOKUP_PRESENCE = 1, 2
_ROWS_BYTES, _pack_rows = _abi.ROWS.size, _abi.ROWS.pack
_MANY = _abi.MANY_KEYS

_OPTION_NAMES = ("lanes", "depth", "staging_bytes", "part_bytes", "queue_chunks",
                 "store_timeout_ms", "load_timeout_ms", "lookup_timeout_ms",
                 "operation_timeout_ms", "buffer_timeout_ms", "attempts", "retry_base_ms",
                 "retry_max_ms", "breaker_failures", "breaker_open_ms", "keep_corrupt")


class _State:
    """What the library points to while a worker lives: never freed before it is destroyed."""

    def __init__(self, store: Store, device: Optional[Device], callbacks: tuple,
                 staging: Optional[memoryview]) -> None:
        self.store = store
        self.device = device
        self.callbacks = callbacks
        self.staging = staging

        # What the jobs in flight use, by id.
        self.live: Dict[int, "_Lent"] = {}
        # What raw files in flight use.
        self.files = files_in_flight


class _Lent:
    """What one job in flight uses: rows count the jobs that use them."""

    __slots__ = ("rows", "keep")

    def __init__(self, rows: Optional[Rows], keep: object) -> None:
        self.rows = rows
        self.keep = keep
        if rows is not None:
            rows._jobs.append(None)

    def give_back(self) -> None:
        if self.rows is not None:
            self.rows._jobs.pop()
            self.rows = None


def _destroy(handle: Handle, timeout_ms: Optional[int]) -> None:
    state = handle.keep
    limit = -1 if timeout_ms is None else timeout_ms
    if limit >= 0:
        handle.close(lambda address: _abi.lib.kvt_worker_destroy(address, limit), _abi.failure,
                     limit)
    else:
        handle.close(_destroy_in_slices, _abi.failure)
    live = state.live if isinstance(state, _State) else {}
    while live:
        live.popitem()[1].give_back()
    if isinstance(state, _State) and state.staging is not None:
        state.staging.release()


def _destroy_in_slices(address: int) -> int:
    while True:
        code = _abi.lib.kvt_worker_destroy(address, slice_ms(None))
        if code != Code.EBUSY:
            return code


def _submit_options(timeout_ms: int, ready: Optional[Ready], expedited: bool = False,
                    lookup_flags: int = 0) -> Optional[bytes]:
    if not timeout_ms and ready is None and not expedited and not lookup_flags:
        return None
    if not 0 <= timeout_ms <= _MAX_JOB_ID:
        raise InvalidArgumentError("timeout_ms: %d, expected at least 0" % timeout_ms)
    return _abi.SUBMIT_OPTIONS.pack(
        _abi.SUBMIT_OPTIONS.size, timeout_ms, int(expedited), lookup_flags,
        ready.kind if ready else 0, ready.descriptor if ready else 0,
        ready.handle if ready else 0)


class Worker:
    """Moves chunks between one store and one device on threads of its own ("lanes").

    Submitting never blocks and never waits: a job is taken whole or an exception says why not
    (:class:`QueueFullError` when the queue is full, :class:`ConflictError` for an id that is in
    use). An accepted job is reported by :meth:`poll` exactly once, and from then on nothing
    touches its memory. Any thread may call anything at any time; :meth:`close` waits for the calls
    of other threads.

    Keyword arguments are those of ``struct kvt_worker_options``; what is left out or 0 is the
    default: ``lanes``, ``depth``, ``staging_bytes``, ``part_bytes``, ``queue_chunks``,
    ``store_timeout_ms``, ``load_timeout_ms``, ``lookup_timeout_ms``, ``operation_timeout_ms``,
    ``buffer_timeout_ms``, ``attempts``, ``retry_base_ms``, ``retry_max_ms``,
    ``breaker_failures``, ``breaker_open_ms``, ``keep_corrupt``. ``thread_init(lane)`` is called on
    each lane's thread first; an exception there makes this constructor fail. ``log`` and
    ``log_level`` are as for :class:`Store`. ``staging_memory`` is a writable buffer whose first
    ``staging_bytes`` (0: all of it) are staging memory instead of memory of the device's; it
    begins at a multiple of 4,096 ("cuda" pins it) and is exported until :meth:`close`.

    A worker that is still open when the interpreter exits, or when it is collected, is closed
    then: what is queued is canceled, and what is in flight gets ten seconds.
    """

    def __init__(self, store: Store, device: Optional[Device] = None, *,
                 thread_init: Optional[Callable[[int], Any]] = None,
                 log: Optional[Callable[[int, str], Any]] = None, log_level: int = 0,
                 staging_memory: Any = None, **options: int) -> None:
        native = _abi.WorkerOptions()
        for name, value in options.items():
            if name not in _OPTION_NAMES:
                raise TypeError("kvtier.Worker: %s: unknown, expected one of %s"
                                % (name, ", ".join(_OPTION_NAMES)))
            bits = 8 * getattr(_abi.WorkerOptions, name).size
            if not 0 <= int(value) < 1 << bits:
                raise InvalidArgumentError("%s: %d, expected 0 to 2^%d - 1" % (name, value, bits))
            setattr(native, name, int(value))
        failures: List[BaseException] = []

        def call_thread_init(_context: Optional[int], lane: int) -> int:
            try:
                thread_init(lane)  # type: ignore[misc]
                return 0
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)
                return 1

        if thread_init is not None:
            native.thread_init = _abi.THREAD_INIT_FUNCTION(call_thread_init)
        native.hooks, log_callback = log_hooks(log, log_level)
        staging = None
        if staging_memory is not None:
            staging = writable_view(staging_memory, "staging_memory")
            if not max(native.staging_bytes, 1) <= staging.nbytes:
                raise InvalidArgumentError("staging_bytes: %d, expected at most the %d of "
                                           "staging_memory"
                                           % (native.staging_bytes, staging.nbytes))
            native.staging_memory = address_of(staging)
            native.staging_bytes = native.staging_bytes or staging.nbytes
        state = _State(store, device, (native.thread_init, log_callback), staging)
        address = ctypes.c_void_p()
        with store._handle as store_at:
            if device is None:
                code = _abi.lib.kvt_worker_create(store_at, None, ctypes.byref(native),
                                                  ctypes.byref(address))
            else:
                with device._handle as device_at:
                    code = _abi.lib.kvt_worker_create(store_at, device_at, ctypes.byref(native),
                                                      ctypes.byref(address))
        if failures:
            raise failures[0]
        _abi.check(code)
        self.store = store
        self.device = device
        self._handle = Handle("worker", address.value or 0, state)
        self._live = state.live
        self._finalizer = weakref.finalize(self, finalize, self._handle, _destroy)

    # Jobs

    def submit_store_rows(self, job_id: int, keys: Keys, rows: Rows, indices: Numbers, *,
                          groups: Groups = 0, timeout_ms: int = 0,
                          ready: Optional[Ready] = None) -> None:
        """Stores row ``indices[k]`` as key ``k``. The rows are lent until the completion.

        `keys` is a sequence of hashes or :class:`PackedKeys`, `indices` a numpy or array array of
        int64 (not copied on the way) or any sequence of ints, `groups` one number for all keys or
        one for each."""
        self._submit_rows("kvt_worker_submit_store_rows", job_id, keys, rows, indices, groups,
                          _submit_options(timeout_ms, ready), ready)

    def submit_load_rows(self, job_id: int, keys: Keys, rows: Rows, indices: Numbers, *,
                         groups: Groups = 0, timeout_ms: int = 0, expedited: bool = False,
                         ready: Optional[Ready] = None) -> None:
        """Loads key ``k`` into row ``indices[k]``; before other loads when `expedited`. Rows of
        keys that are not reported as loaded are undefined. Otherwise as
        :meth:`submit_store_rows`."""
        self._submit_rows("kvt_worker_submit_load_rows", job_id, keys, rows, indices, groups,
                          _submit_options(timeout_ms, ready, expedited), ready)

    def submit_store(self, job_id: int, transfer: Transfer, *, timeout_ms: int = 0,
                     ready: Optional[Ready] = None) -> None:
        """Stores what a transfer names; see :class:`Transfer`."""
        self._submit_transfer("kvt_worker_submit_store", job_id, transfer,
                              _submit_options(timeout_ms, ready), ready)

    def submit_load(self, job_id: int, transfer: Transfer, *, timeout_ms: int = 0,
                    expedited: bool = False, ready: Optional[Ready] = None) -> None:
        """Loads what a transfer names; before other loads when `expedited`."""
        self._submit_transfer("kvt_worker_submit_load", job_id, transfer,
                              _submit_options(timeout_ms, ready, expedited), ready)

    def set_geometry(self, group: int, blocks_per_chunk: int, ref_bytes: Sequence[int]) -> None:
        """The shape of a group's chunks, for lookups: blocks of a chunk and the bytes of one block
        of each ref. Rows have one block and one ref: ``set_geometry(0, 1, [rows.row_bytes])``."""
        at, count, kept = words(ref_bytes, "ref_bytes", False)
        if not 0 <= group < 1 << 32 or not 0 <= blocks_per_chunk < 1 << 32:
            raise InvalidArgumentError("group %d, blocks_per_chunk %d: expected 0 to 2^32 - 1"
                                       % (group, blocks_per_chunk))
        native = _abi.GEOMETRY.pack(_abi.GEOMETRY.size, blocks_per_chunk, count, at)
        with self._handle as address:
            code = _abi.quick.kvt_worker_set_geometry(address, group, native)
        del kept
        _abi.check(code)

    def submit_lookup(self, job_id: int, keys: Keys, *, groups: Groups = 0, prefix: bool = False,
                      presence: bool = False, timeout_ms: int = 0) -> None:
        """Asks which keys are there: HIT, PARTIAL, MISS, PENDING (a store of it is queued or
        running) or UNKNOWN (could not be asked). With `prefix` it stops at the first miss and what
        comes after is UNKNOWN; with `presence` the result says which blocks partial chunks hold.
        The geometry of the keys' groups must have been set."""
        packed = as_packed(keys, groups)
        options = _submit_options(timeout_ms, None, False,
                                  _LOOKUP_PREFIX * prefix | _LOOKUP_PRESENCE * presence)
        self._check_id(job_id)
        count = len(packed)
        library = _abi.quick if count < _MANY else _abi.lib
        with self._handle as address:
            code = library.kvt_worker_submit_lookup(address, job_id, packed.address, count,
                                                    options)
        _abi.check(code)

    def submit_ops(self, files: Sequence[FileOps], is_store: bool, *, timeout_ms: int = 0,
                   ready: Optional[Ready] = None,
                   keep: object = None) -> List[IOCompletion]:
        """Moves whole raw files without names, keys or trailers (stores that keep files only): one
        completion for each. `keep` is an object that lives until a file's completion has been
        seen done or given up. These jobs are not reported by :meth:`poll`."""
        options = _submit_options(timeout_ms, ready)
        return submit_files(self._handle, files, is_store, options, (ready, keep))

    def _check_id(self, job_id: int) -> None:
        if not 0 <= job_id <= _MAX_JOB_ID:
            raise InvalidArgumentError("job_id: %d, expected 0 to 2^64 - 1" % job_id)

    def _submit_rows(self, call: str, job_id: int, keys: Keys, rows: Rows, indices: Numbers,
                     groups: Groups, options: Optional[bytes], ready: Optional[Ready]) -> None:
        packed = as_packed(keys, groups)
        count = len(packed)
        indices_at, index_count, kept = words(indices, "indices", True)
        if index_count != count:
            raise InvalidArgumentError("indices: %d numbers, expected one for each of %d keys"
                                       % (index_count, count))
        native = _pack_rows(_ROWS_BYTES, rows.checked_address(), rows.row_bytes, rows.row_count,
                            indices_at, packed.address, count)
        self._submit(call, job_id, native, options, _Lent(rows, ready), count)
        del kept

    def _submit_transfer(self, call: str, job_id: int, transfer: Transfer,
                         options: Optional[bytes], ready: Optional[Ready]) -> None:
        self._submit(call, job_id, transfer.native, options,
                     _Lent(None, (transfer.keep, ready)), transfer.copy_count)

    def _submit(self, call: str, job_id: int, native: bytes, options: Optional[bytes],
                lent: _Lent, count: int) -> None:
        """What the job uses is registered before another thread could see its completion."""
        try:
            self._check_id(job_id)
            if self._live.setdefault(job_id, lent) is not lent:
                raise ConflictError("job %d: is in use already" % job_id, Code.EEXIST)
        except BaseException:
            lent.give_back()
            raise
        handle = self._handle
        code = _EAGAIN
        try:
            function = getattr(_abi.quick if count < _MANY else _abi.lib, call)
            address = handle.enter()
            try:
                code = function(address, job_id, native, options)
            finally:
                handle.leave()
            if code < 0:
                raise _abi.failure(code)
        except BaseException:
            if code < 0:
                self._live.pop(job_id, None)
                lent.give_back()
            raise

    # Completions

    def poll(self, max_results: int = 64, timeout_ms: int = 0) -> List[Result]:
        """Takes up to `max_results` completions, in no promised order; an empty list when none
        waits. With `timeout_ms` (negative: for ever) it waits for the first one."""
        if max_results < 1:
            raise InvalidArgumentError("max_results: %d, expected at least 1" % max_results)
        results = self._poll_now(max_results)
        if results or not timeout_ms:
            return results
        until = deadline(timeout_ms)
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN)
        while not results:
            wait = slice_ms(until)
            if not wait:
                break
            with self._handle:
                poller.poll(wait)
            results = self._poll_now(max_results)
        return results

    def _poll_now(self, max_results: int) -> List[Result]:
        taken = (ctypes.c_void_p * max_results)()
        quick = _abi.quick
        handle = self._handle
        address = handle.enter()
        try:
            count = quick.kvt_worker_poll(address, taken, max_results)
        finally:
            handle.leave()
        if count <= 0:
            if count < 0:
                raise _abi.failure(count)
            return []
        results = []
        live = self._live
        for i in range(count):
            at = taken[i]
            try:
                result = take_result(at)
            finally:
                quick.kvt_result_release(at)
            lent = live.pop(result.job_id, None)
            if lent is not None:
                lent.give_back()
            results.append(result)
        return results

    def _wait(self, function: Callable[..., int], job_ids: Iterable[int],
              timeout_ms: int) -> bool:
        try:
            ids = array("Q", job_ids)
        except (OverflowError, TypeError) as error:
            raise InvalidArgumentError("job_ids: %s, expected 0 to 2^64 - 1" % error) from None
        at, count = ids.buffer_info()
        until = deadline(timeout_ms)
        while True:
            wait = slice_ms(until)
            with self._handle as address:
                code = function(address, at if count else None, count, wait, None)
            if code != _ETIMEDOUT:
                _abi.check(code)
                return True
            if not wait or slice_ms(until) == 0:
                return False

    def wait(self, job_ids: Iterable[int], timeout_ms: int = -1) -> bool:
        """Waits until none of these jobs runs any more; their completions stay for :meth:`poll`.
        Ids that are not known are ignored. False when the time (negative: none) was up first."""
        return self._wait(_abi.lib.kvt_worker_wait, job_ids, timeout_ms)

    def wait_memory(self, job_ids: Iterable[int], timeout_ms: int = -1) -> bool:
        """Like :meth:`wait`, but returns as soon as the jobs' memory is quiet: for a store that is
        once its bytes have been gathered, which may be long before it is stored."""
        return self._wait(_abi.lib.kvt_worker_wait_memory, job_ids, timeout_ms)

    def drain(self, timeout_ms: int = -1) -> bool:
        """Waits until no job runs; completions stay for :meth:`poll`. False when the time was up
        first."""
        until = deadline(timeout_ms)
        while True:
            wait = slice_ms(until)
            with self._handle as address:
                code = _abi.lib.kvt_worker_drain(address, wait)
            if code != _ETIMEDOUT:
                _abi.check(code)
                return True
            if not wait or slice_ms(until) == 0:
                return False

    def cancel(self, job_id: int) -> bool:
        """Asks a job to stop. It still completes, and keys that were finished stay so. False when
        the id is not live."""
        self._check_id(job_id)
        with self._handle as address:
            code = _abi.quick.kvt_worker_cancel(address, job_id)
        if code == Code.ENOENT:
            return False
        _abi.check(code)
        return True

    def fileno(self) -> int:
        """A descriptor that is readable while completions wait for :meth:`poll`: for ``select``
        and event loops. Never read or close it; it lives as long as the worker."""
        with self._handle as address:
            return _abi.check(_abi.quick.kvt_worker_event_fd(address))

    event_fd = fileno

    def stats(self) -> Stats:
        """Statistics of this moment. Never blocks on I/O."""
        native = _abi.Stats()
        with self._handle as address:
            code = _abi.quick.kvt_worker_stats(address, ctypes.byref(native))
        _abi.check(code)
        return Stats(native)

    # Life

    def close(self, timeout_ms: Optional[int] = None) -> None:
        """Stops taking jobs, cancels what is queued, waits for what is in flight and frees
        everything, completions that were not polled included. When `timeout_ms` (None: no limit)
        is up first, :class:`BusyError`: the memory of the jobs in flight is still lent, and close
        may be called again. In a forked child it frees memory only. Closing twice is fine."""
        if not self._handle.address:
            return
        _destroy(self._handle, timeout_ms)
        self._finalizer.detach()

    @property
    def closed(self) -> bool:
        return not self._handle.address

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvtier.Worker of %s%s>" % (self.store.uri, ", closed" if self.closed else "")
