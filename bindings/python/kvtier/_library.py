# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libkvtier: the file that KVTIER_LIBRARY names, else the one in this package's
folder (a wheel), else the system's."""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Tuple

# While the major version is 0, each minor version may change the ABI.
ABI_VERSION = "0.1"
SONAME = "libkvtier.so." + ABI_VERSION
ENVIRONMENT = "KVTIER_LIBRARY"


def _candidate() -> str:
    named = os.environ.get(ENVIRONMENT)
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", SONAME)
    return beside if os.path.exists(beside) else SONAME


def load() -> Tuple[ctypes.CDLL, ctypes.PyDLL, str]:
    """The library twice, and its path or name: calls through the first let other threads run
    (what may block), calls through the second do not (what takes microseconds, where handing over
    the interpreter's lock would cost more than the call)."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise ImportError("kvtier: %s with %d bits, expected 64-bit Linux"
                          % (sys.platform, 8 * ctypes.sizeof(ctypes.c_void_p)))
    path = _candidate()
    try:
        library = ctypes.CDLL(path)
        quick = ctypes.PyDLL(path)
    except OSError as error:
        raise ImportError(
            "kvtier: cannot load %s: %s (install the wheel or the package libkvtier%s, or set %s "
            "to the library's path)" % (path, error, ABI_VERSION, ENVIRONMENT)) from None
    try:
        version_function = library.kvt_version
    except AttributeError:
        raise ImportError("kvtier: %s: not libkvtier, it has no kvt_version" % path) from None
    version_function.restype = ctypes.c_char_p
    version = version_function().decode()
    if not version.startswith(ABI_VERSION + "."):
        raise ImportError("kvtier: %s: version %s, expected %s.x" % (path, version, ABI_VERSION))
    return library, quick, path
