# SPDX-License-Identifier: Apache-2.0
"""What the tests share: which library they test, a store of each backend, and an S3 server.

KVT_BUILD_DIR is a build folder (its libkvtier and its s3_fault_server are used), KVTIER_LIBRARY
another library than that one. With KVT_TEST_INSTALLED it is the installed package that is tested,
with its own library.
"""
import os
import pathlib
import subprocess
import sys
import uuid

import pytest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("KVT_SOURCE_DIR", HERE.parent.parent.parent))
BUILD = pathlib.Path(os.environ.get("KVT_BUILD_DIR", SOURCE / "build"))
LIBRARY = BUILD / "libkvtier.so.0.1"

if "KVT_TEST_INSTALLED" not in os.environ:
    if "KVTIER_LIBRARY" not in os.environ and LIBRARY.exists():
        os.environ["KVTIER_LIBRARY"] = str(LIBRARY)
    sys.path.insert(0, str(HERE.parent))
    # Programs that tests start find the package too.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HERE.parent)] + [p for p in [os.environ.get("PYTHONPATH")] if p])
for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
    os.environ[name] = "/dev/null"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import kvtier  # noqa: E402  (after its environment)

TIMEOUT_MS = 60_000


class Place:
    """A store's URI and options; every open() names the same place."""

    def __init__(self, uri, **options):
        self.uri = uri
        self.options = options

    def open(self, **arguments):
        arguments.setdefault("namespace", "test")
        arguments.setdefault("mode", "exact")
        options = dict(self.options, **arguments.pop("options", {}))
        return kvtier.Store(self.uri, options=options, **arguments)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The URL of an S3 server that holds the bucket "test"."""
    program = BUILD / "tests" / "s3_fault_server"
    if not program.exists():
        pytest.skip("%s is not built" % program)
    folder = tmp_path_factory.mktemp("s3")
    secret = folder / "secret"
    secret.write_text("secret-of-the-tests\n")
    with subprocess.Popen([str(program), "--bucket", "test", "--access-key", "key-of-the-tests",
                           "--secret-key-file", str(secret)],
                          stdout=subprocess.PIPE, universal_newlines=True) as server:
        line = server.stdout.readline()
        assert line.startswith("listening "), line
        yield line.split()[1]
        server.terminate()


@pytest.fixture
def s3_place(s3_server):
    """A place of its own in the bucket of the server."""
    return Place("s3://test/" + uuid.uuid4().hex, endpoint=s3_server, region="us-east-1",
                 access_key="key-of-the-tests", secret_key="secret-of-the-tests")


@pytest.fixture(params=["mem", "file", "s3"])
def place(request, tmp_path):
    """A place of each backend in turn, empty."""
    if request.param == "mem":
        return Place("mem:" + uuid.uuid4().hex)
    if request.param == "file":
        return Place("file://%s" % (tmp_path / "store"))
    return request.getfixturevalue("s3_place")


@pytest.fixture
def store(place):
    with place.open() as opened:
        yield opened


@pytest.fixture
def worker(store):
    with kvtier.Worker(store, lanes=2) as opened:
        yield opened


@pytest.fixture
def mem_store():
    with Place("mem:").open() as opened:
        yield opened


@pytest.fixture
def mem_worker(mem_store):
    with kvtier.Worker(mem_store, lanes=2) as opened:
        yield opened


def take(worker, count=1):
    """The next completions by id of their jobs."""
    results = {}
    while len(results) < count:
        taken = worker.poll(timeout_ms=TIMEOUT_MS)
        assert taken, "no completion within a minute"
        for result in taken:
            assert result.job_id not in results, "reported twice"
            results[result.job_id] = result
    return results


def take_one(worker):
    (result,) = take(worker).values()
    return result


@pytest.fixture
def helpers():
    class Helpers:
        pass

    Helpers.take = staticmethod(take)
    Helpers.take_one = staticmethod(take_one)
    Helpers.timeout_ms = TIMEOUT_MS
    return Helpers


def run_program(text, *arguments, timeout=120):
    """Runs a Python program in an interpreter of its own: (exit status, output, errors)."""
    result = subprocess.run([sys.executable, "-X", "dev", "-c", text, *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            universal_newlines=True, timeout=timeout, check=False)
    return result.returncode, result.stdout, result.stderr


@pytest.fixture
def program():
    return run_program
