# SPDX-License-Identifier: Apache-2.0
"""What the live tests share: the server that the environment names, kvtier and other clients.

tests/servers/rgw says what the variables are that begin with KVT_S3_; a test needs KVT_S3_ENDPOINT,
KVT_S3_BUCKET and the usual AWS_ variables at least. Every case works below a prefix of its own, which
it empties at its end.
"""
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import uuid

HERE = pathlib.Path(__file__).resolve().parent
TOOL = os.environ.get("KVTIER", str(HERE.parent.parent / "build" / "kvtier"))
DATA = pathlib.Path(os.environ.get("KVT_TEST_DATA_DIR", HERE.parent / "data"))
PROGRAMS = pathlib.Path(os.environ.get("KVT_BUILD_DIR", HERE.parent.parent / "build")) / "tests"
TRACE = DATA / "trace_small.jsonl"
TIMEOUT_S = 240
MIB = 1 << 20

SERVER = os.environ.get("KVT_S3_SERVER", "")
ENDPOINT = os.environ.get("KVT_S3_ENDPOINT", "")
BUCKET = os.environ.get("KVT_S3_BUCKET", "")
# How kvtier calls the store: "s3", or another backend for the same objects.
SCHEME = os.environ.get("KVT_LIVE_SCHEME", "s3")
REGION = os.environ.get("AWS_REGION", "us-east-1")


def skip_all(reason):
    print("skipped: " + reason)
    sys.exit(77)


def main(needs=()):
    """Runs the cases of the calling module, or skips all when the server lacks what they need."""
    for name in ("KVT_S3_ENDPOINT", "KVT_S3_BUCKET", "AWS_ACCESS_KEY_ID", *needs):
        if not os.environ.get(name):
            skip_all("%s is not set; tests/servers/rgw starts a server that has it" % name)
    if importlib.util.find_spec("boto3") is None:
        skip_all("boto3 is not installed; scripts/install-deps live installs it")
    # Neither the tests nor the clients may find anything in the user's own files.
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = "/dev/null"
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    # boto3 leaves its connections to the collector of garbage.
    unittest.main(verbosity=2, warnings="ignore")


def some_bytes(count, seed=b""):
    """Bytes that differ everywhere and do not compress."""
    return hashlib.shake_128(seed + count.to_bytes(8, "big")).digest(count)


def environment_with(changes):
    """This environment; None in `changes` takes a variable away."""
    merged = dict(os.environ, **{k: v for k, v in changes.items() if v is not None})
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
    return merged


class LiveCase(unittest.TestCase):
    def setUp(self):
        import boto3
        from botocore.config import Config

        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kvtier-live-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.prefix = "live-%s" % uuid.uuid4().hex[:12]
        self.s3 = boto3.client(
            "s3",
            endpoint_url=ENDPOINT,
            region_name=REGION,
            verify=os.environ.get("KVT_S3_CA") or None,
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        )
        self.addCleanup(self.empty_bucket)
        self.uri = "%s://%s/%s" % (SCHEME, BUCKET, self.prefix)
        self.common = self.store_of(ENDPOINT) + ["--namespace", "ns"]

    def skip(self, reason):
        print("\n  skipped: %s" % reason)
        self.skipTest(reason)

    def need_command(self, name):
        if not shutil.which(name):
            self.skip("%s is not installed; scripts/install-deps live installs it" % name)

    def store_of(self, endpoint):
        return ["--store", self.uri, "-o", "endpoint=%s" % endpoint]

    # ---- kvtier ----

    def run_command(self, arguments, status=0, environment=None, **options):
        """Fails unless the exit status is `status`; None takes any."""
        done = subprocess.run(
            [str(argument) for argument in arguments],
            capture_output=True,
            timeout=TIMEOUT_S,
            env=environment_with(environment or {}),
            check=False,
            **options,
        )
        if status is not None and done.returncode != status:
            # What was printed may be an object.
            printed = [stream[-2000:].decode(errors="replace")
                       for stream in (done.stdout, done.stderr)]
            self.fail("%s\nexit status %d, expected %d\nstdout: %r\nstderr: %s"
                      % (arguments, done.returncode, status, printed[0][:500], printed[1]))
        return done

    def run_tool(self, *arguments, **options):
        return self.run_command([TOOL, *arguments], **options)

    def run_json(self, *arguments, **options):
        done = self.run_tool(*arguments, "--json", **options)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def message_of(self, *arguments, status, environment=None):
        """The line about what failed; only warnings stand before it."""
        done = self.run_tool(*arguments, status=status, environment=environment)
        *warnings, message = done.stderr.decode().splitlines()
        for line in warnings:
            self.assertIn("warning: ", line)
        secret = environment_with(environment or {}).get("AWS_SECRET_ACCESS_KEY")
        if secret:
            self.assertNotIn(secret, done.stderr.decode())
        return message

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def put(self, key, data, *more, store=None, **options):
        """The status of the store, for example "stored"."""
        path = self.write("payload", data)
        where = store or self.common
        return self.run_json("put", *where, *more, key, path, **options)[0]["status"]

    def get(self, key, *more, store=None, **options):
        where = store or self.common
        return self.run_tool("get", *where, *more, key, "-", **options).stdout

    def name_of(self, key, *more):
        """The whole key of an object in the bucket."""
        line = self.run_json("name", "--namespace", "ns", *more, key)[0]
        return "%s/%s" % (self.prefix, line["name"])

    # ---- the bucket, by a client of others ----

    def keys(self, below=None):
        found = []
        pages = self.s3.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=BUCKET, Prefix=below or self.prefix + "/"):
            found += [entry["Key"] for entry in page.get("Contents", [])]
        return found

    def read_object(self, key):
        return self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def uploads(self):
        listed = self.s3.list_multipart_uploads(Bucket=BUCKET, Prefix=self.prefix + "/")
        return listed.get("Uploads", [])

    def empty_bucket(self):
        for key in self.keys():
            self.s3.delete_object(Bucket=BUCKET, Key=key)
        for upload in self.uploads():
            self.s3.abort_multipart_upload(
                Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"]
            )
