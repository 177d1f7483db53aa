# SPDX-License-Identifier: Apache-2.0
"""Runs test files with pytest: run.py FILE... Exit status 77 when they cannot run here, or when
every test was skipped."""
import importlib.util
import os
import sys


class Count:
    """What became of the tests."""

    passed = failed = skipped = 0

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed += 1
        elif report.skipped:
            self.skipped += 1
        elif report.when == "call":
            self.passed += 1


def main(files):
    for module in ("pytest", "numpy"):
        if importlib.util.find_spec(module) is None:
            print("skipped: %s has no %s; scripts/install-deps installs python3-%s"
                  % (sys.executable, module, module))
            return 77
    import pytest
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    count = Count()
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-rfEs", *files], plugins=[count])
    if status == 0 and count.skipped and not count.passed:
        return 77
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
