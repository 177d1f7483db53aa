# SPDX-License-Identifier: Apache-2.0
"""The configuration of a tier or worker: what vLLM hands over as keyword arguments, checked.

vLLM's own tiers' arguments are taken as they are: ``store_config``, ``prefix`` and ``io_threads``
of the object tier, ``root_dir`` and the numbers of threads of the file tier.
"""
from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from typing import Any, Mapping, Optional

from . import _compat

_MAX_LANES = 64


@dataclass
class TierConfig:
    """docs/vllm.md says what each option means."""

    # where
    store: Optional[str] = None
    store_config: Optional[Mapping[str, Any]] = field(default=None, repr=False)
    prefix: str = ""
    root_dir: Optional[str] = None
    options: Optional[Mapping[str, Any]] = field(default=None, repr=False)
    # what the names are made from
    fingerprint: str = "full"
    model_revision: Optional[str] = None
    kv_layout: Optional[str] = None
    hash_seed: Optional[str] = None
    # the worker
    lanes: Optional[int] = None
    depth: int = 0
    staging_bytes: int = 0
    part_bytes: int = 0
    queue_chunks: int = 0
    store_timeout_s: float = 0
    load_timeout_s: float = 0
    lookup_timeout_s: float = 0
    operation_timeout_s: float = 0
    attempts: int = 0
    keep_corrupt: bool = False
    # the tier
    max_wait_s: float = 5.0
    touch_interval_s: Optional[float] = None
    metrics_label: Optional[str] = None
    enable_kv_events: bool = False
    locality: Optional[str] = None
    # of vLLM's own tiers
    io_threads: Optional[int] = None
    n_read_threads: Optional[int] = None
    n_write_threads: Optional[int] = None

    @classmethod
    def names(cls) -> "list[str]":
        return [member.name for member in fields(cls)]

    @classmethod
    def take(cls, arguments: Mapping[str, Any], logger: Any) -> "TierConfig":
        """From keyword arguments; those that are not known are named in a warning and dropped, for
        releases of vLLM add some."""
        known = set(cls.names())
        unknown = [name for name in arguments if name not in known and name != "module_path"]
        if unknown:
            logger.warning(
                "kvtier: arguments that this version does not know are ignored: %s",
                _compat.unknown_arguments(unknown, known),
            )
        config = cls(**{name: value for name, value in arguments.items() if name in known})
        config.check()
        return config

    def check(self) -> None:
        for name in ("store", "root_dir", "prefix", "metrics_label", "model_revision", "kv_layout"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError("%s: a %s, expected a string" % (name, type(value).__name__))
        for name in ("store_config", "options"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise ValueError("%s: a %s, expected an object" % (name, type(value).__name__))
        for member in fields(self):
            value = getattr(self, member.name)
            if member.name.endswith("_s") or member.name in _NUMBERS:
                if value is None:
                    continue
                if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                    raise ValueError("%s: %r, expected a number from 0" % (member.name, value))
        if self.locality is not None and self.locality not in ("LOCAL", "REMOTE"):
            raise ValueError("locality: %r, expected LOCAL or REMOTE" % (self.locality,))
        self.uri()

    def uri(self) -> str:
        """Where the chunks are."""
        if self.root_dir is not None:
            if self.store is not None or self.store_config is not None:
                raise ValueError("root_dir: given beside store or store_config, expected one place")
            return "file://" + os.path.abspath(self.root_dir)
        if self.store is not None:
            if not self.prefix:
                return self.store
            # bucket and prefix in one: a second prefix is not what anybody means
            rest = self.store.partition("://")[2]
            if "/" in rest.rstrip("/"):
                raise ValueError(
                    "prefix: %r beside store %r, expected the prefix in one of them"
                    % (self.prefix, self.store)
                )
            return "%s/%s" % (self.store.rstrip("/"), self.prefix.strip("/"))
        if self.store_config is None:
            raise ValueError(
                'store: missing, expected "s3://bucket/prefix" or "file:///directory" (or the '
                "store_config or root_dir of vLLM's own tiers)"
            )
        bucket = self.store_config.get("bucket")
        if not bucket or not isinstance(bucket, str):
            raise ValueError("store_config: no bucket, expected one, or store s3://bucket/prefix")
        # With vLLM's own keys the prefix counts as it is, slashes included.
        prefix = self.prefix if self.is_vllms_bucket() else self.prefix.strip("/")
        return "s3://%s/%s" % (bucket, prefix) if prefix else "s3://%s" % bucket

    def is_vllms_bucket(self) -> bool:
        """Whether keys are those of vLLM's object tier."""
        return (self.options or {}).get("compat_names") == "vllm-obj"

    def seed(self) -> Optional[str]:
        """What block hashes begin with on all instances; None when each has its own."""
        if self.hash_seed is not None:
            return str(self.hash_seed)
        seed = os.environ.get("PYTHONHASHSEED", "random")
        return None if seed == "random" else seed

    def store_options(self) -> "dict[str, str]":
        """Options of the library's, by name. Values may be secret."""
        made = {}
        if self.store_config is not None:
            made["store_config"] = json.dumps(dict(self.store_config))
        seed = self.seed()
        # A bucket of vLLM's object tier has no config.json to record it in.
        if seed is not None and not self.is_vllms_bucket():
            made["hash_seed"] = seed
        for name, value in (self.options or {}).items():
            made[name] = ("false", "true")[value] if isinstance(value, bool) else str(value)
        return made

    def touch_interval(self) -> Optional[float]:
        """Seconds; None when nobody is going to look at access times."""
        if self.touch_interval_s is not None:
            return self.touch_interval_s or None
        return 60.0 if "max_bytes" in (self.options or {}) else None

    def worker_options(self) -> "dict[str, Any]":
        """Keyword arguments of kvtier.Worker, those that say anything."""
        lanes = self.lanes if self.lanes is not None else self.io_threads
        made = {
            "lanes": min(int(lanes or 0), _MAX_LANES),
            "depth": int(self.depth),
            "staging_bytes": int(self.staging_bytes),
            "part_bytes": int(self.part_bytes),
            "queue_chunks": int(self.queue_chunks),
            "store_timeout_ms": round(self.store_timeout_s * 1000),
            "load_timeout_ms": round(self.load_timeout_s * 1000),
            "lookup_timeout_ms": round((self.lookup_timeout_s or self.max_wait_s) * 1000),
            "operation_timeout_ms": round(self.operation_timeout_s * 1000),
            "attempts": int(self.attempts),
            "keep_corrupt": int(bool(self.keep_corrupt)),
        }
        return {name: value for name, value in made.items() if value}


_NUMBERS = frozenset(
    ("lanes", "depth", "staging_bytes", "part_bytes", "queue_chunks", "attempts", "io_threads")
)
