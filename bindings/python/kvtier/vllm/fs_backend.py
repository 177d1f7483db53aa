# SPDX-License-Identifier: Apache-2.0
"""KvTierFSBackend: how vLLM's FSOffloadingSpec moves files, by this library.

    "spec_name": "FSOffloadingSpec", "fs_backend": "KvTierFSBackend",
    "fs_backend_module_path": "kvtier.vllm"

vLLM's base class names the files and cuts transfers into (device pointer, size, file offset)
triples; here they are moved. Files appear whole or not at all; nothing is verified, for they are
raw files.
"""
from __future__ import annotations

import os
import queue
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .. import Device, FileOps, Mode, Ready, Store, Worker
from ..errors import BusyError, Error, QueueFullError
from . import _compat, _fingerprint
from ._config import TierConfig
from .worker import parse_device

logger = _compat.logger(__name__)

_PATIENCE_MS = 5000
# The store's namespace: the raw files are outside it, but a store has one.
_NAMESPACE = "kvtier-raw"

_BASE: Any = object if _compat.FSOffloadingWorker is None else _compat.FSOffloadingWorker


class _NotStored:
    """A store that the full queue refused: done, but not stored."""

    @staticmethod
    def done() -> bool:
        return True

    @staticmethod
    def result(timeout: Optional[float] = None) -> None:
        return None


class _EventWatcher:
    """Waits for events that the library cannot wait for itself, one after the other on a thread of
    its own, and tells it by descriptors that become readable. Events of one stream happen in their
    order."""

    def __init__(self) -> None:
        self._events: "queue.SimpleQueue[Optional[Tuple[Any, int]]]" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        # Descriptors in use, and what has to be done before they can be closed.
        self._used: List[Tuple[int, List[Any]]] = []

    def watch(self, event: Any) -> int:
        """A descriptor that is readable once the event has happened."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kvtier-event", daemon=True)
            self._thread.start()
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._events.put((event, writer))
        return reader

    def lend(self, reader: int, completions: List[Any]) -> None:
        """The descriptor is closed some time after all of these are done."""
        self._used.append((reader, completions))

    def reap(self) -> None:
        used = []
        for reader, completions in self._used:
            if all(completion.done() for completion in completions):
                os.close(reader)
            else:
                used.append((reader, completions))
        self._used = used

    def _run(self) -> None:
        while True:
            item = self._events.get()
            if item is None:
                return
            event, writer = item
            try:
                event.synchronize()
            except Exception:  # pylint: disable=broad-except
                logger.exception("kvtier: waiting for a device event")
            os.close(writer)  # readable: at its end

    def close(self) -> None:
        """No job uses a descriptor any more."""
        if self._thread is not None:
            self._events.put(None)
            self._thread.join()
            self._thread = None
        for reader, _ in self._used:
            os.close(reader)
        self._used = []


def _triples(ops: Sequence[Any]) -> List[Tuple[int, int, int]]:
    """FileOp objects, or the plain tuples of earlier releases."""
    made = []
    for op in ops:
        if isinstance(op, tuple):
            pointer, size, offset = op
        else:
            pointer, size, offset = op.device_ptr, op.size_bytes, op.file_offset
        made.append((int(pointer), int(size), int(offset)))
    return made


class KvTierFSBackend(_BASE):
    def __init__(
        self,
        file_mapper: Any,
        blocks_per_file: int,
        device: Any = None,
        kv_caches: Any = None,
        root_dir: Optional[str] = None,
        extra_config: Optional[Dict[str, Any]] = None,
    ) -> None:
        """vLLM's constructor. extra_config: "kvtier" may hold the tier's options for the worker
        (lanes, depth, staging_bytes, ...) and the store (options)."""
        if _BASE is object:
            raise ImportError(
                "kvtier.vllm: vLLM %s has no vllm.v1.kv_offload.fs.worker.FSOffloadingWorker, "
                "which KvTierFSBackend extends" % _compat.VERSION
            )
        super().__init__(file_mapper, blocks_per_file)
        if not root_dir:
            raise ValueError("root_dir: missing, expected the folder of the files")
        arguments = dict((extra_config or {}).get("kvtier", {}), root_dir=root_dir)
        config = TierConfig.take(arguments, logger)
        self._root = os.path.abspath(root_dir)
        self._watcher = _EventWatcher()
        self._worker: Optional[Worker] = None
        self._device: Optional[Device] = None
        self._store: Optional[Store] = None
        name, ordinal = parse_device(device)
        self._device_name = name
        try:
            self._store = Store(
                config.uri(), namespace=_NAMESPACE, mode=Mode.EXACT, options=config.store_options()
            )
            self._store.probe()
            self._device = Device(name, ordinal)
            self._worker = Worker(self._store, self._device, **config.worker_options())
        except Error as error:
            self.shutdown_backend()
            raise RuntimeError(
                "kvtier: the folder %s cannot be used on device %s: %s (%s)"
                % (root_dir, name, error.detail, error.name)
            ) from error

    def _below_root(self, path: str) -> str:
        relative = os.path.relpath(os.path.abspath(path), self._root)
        if relative.startswith(".."):
            raise ValueError("file %s: outside root_dir %s" % (path, self._root))
        return relative

    def submit_io(self, file_ops: Sequence[Any], is_store: bool, ready_event: Any) -> List[Any]:
        """One completion for each file. The event is waited for by the library, never here."""
        worker = self._worker
        if worker is None:
            raise RuntimeError("kvtier: the backend was shut down")
        self._watcher.reap()
        files = [FileOps(self._below_root(path), _triples(ops)) for path, ops in file_ops]
        ready, reader = self._ready(ready_event)
        completions: List[Any] = []
        try:
            completions = worker.submit_ops(files, is_store, ready=ready, keep=ready_event)
        except QueueFullError:
            if not is_store:
                raise
            return [_NotStored() for _ in files]
        finally:
            if reader is not None:
                self._watcher.lend(reader, completions)
        return completions

    def _ready(self, event: Any) -> Tuple[Optional[Ready], Optional[int]]:
        """When the memory may be touched, and the descriptor that tells it, if one does."""
        if event is None:
            return None, None
        if self._device_name == "cuda":
            handle = _compat.cuda_event(event)
            return (Ready.event(handle, keep=event) if handle else None), None
        query = getattr(event, "query", None)
        if query is not None and query():
            return None, None
        reader = self._watcher.watch(event)
        return Ready.fd(reader), reader

    def shutdown_dispatch(self) -> None:
        """Nothing is taken any more; what is under way is waited for."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        while not worker.drain(_PATIENCE_MS):
            logger.warning("kvtier: shutting down: files are still under way")
        while True:
            try:
                worker.close(_PATIENCE_MS)
                break
            except BusyError as error:
                logger.warning("kvtier: shutting down: %s", error)
        self._watcher.close()

    def shutdown_backend(self) -> None:
        self.shutdown_dispatch()
        if self._device is not None:
            self._device.close()
            self._device = None
        if self._store is not None:
            self._store.close()
            self._store = None


if _BASE is not object:
    _compat.check_complete(KvTierFSBackend, _BASE)
