#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The S3 server of the tests, as a program, seen by clients of other projects: what it takes and
# answers is S3 and not only what this library makes of it. Skipped when there is no boto3.
set -eu

server=${KVT_BUILD_DIR:?}/tests/s3_fault_server
python3 -c 'import boto3' 2>/dev/null || {
	echo "no python3-boto3 here: skipped"
	exit 77
}
[ -x "$server" ] || {
	echo "no s3_fault_server in this build (it needs KVT_S3): skipped"
	exit 77
}

dir=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait; rm -rf "$dir"' EXIT
printf 'sec/ret+KEY' >"$dir/secret"
mkfifo "$dir/said"
"$server" --access-key AKIDTEST --secret-key-file "$dir/secret" --region eu-test-1 \
	--trait md5-etags "ops=get key=slow times=2 status=503 code=SlowDown" >"$dir/said" &
pid=$!
read -r word url <"$dir/said"
[ "$word" = listening ]

for name in AWS_PROFILE AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_ENDPOINT_URL \
	http_proxy https_proxy HTTP_PROXY HTTPS_PROXY; do
	unset "$name" || true
done
HOME=$dir timeout 100 python3 - "$url" <<'PYTHON'
import hashlib, os, sys

import boto3
import botocore
from boto3.s3.transfer import TransferConfig
from botocore.client import Config


def client(secret="sec/ret+KEY", style="path", attempts=1):
    return boto3.client(
        "s3",
        endpoint_url=sys.argv[1],
        aws_access_key_id="AKIDTEST",
        aws_secret_access_key=secret,
        region_name="eu-test-1",
        config=Config(s3={"addressing_style": style}, retries={"max_attempts": attempts}),
    )


def error(call, **arguments):
    try:
        call(Bucket="bucket", **arguments)
    except botocore.exceptions.ClientError as e:
        return e.response["Error"]["Code"], e.response["ResponseMetadata"]["HTTPStatusCode"]
    return None


s3 = client()
keys = ["a/b", "a b+c", "a=b(c)*~@:,'", "\u00fc/\u00f6", "a%20b", "x//y", "\u20ac&<>\""]
for key in keys:
    body = b"hello " + key.encode()
    s3.put_object(Bucket="bucket", Key=key, Body=body)
    assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == body
    head = s3.head_object(Bucket="bucket", Key=key)
    assert head["ETag"] == '"%s"' % hashlib.md5(body).hexdigest()
    assert head["ContentLength"] == len(body)
assert s3.get_object(Bucket="bucket", Key="a/b", Range="bytes=2-4")["Body"].read() == b"llo"
assert s3.get_object(Bucket="bucket", Key="a/b", Range="bytes=-3")["ContentRange"] == "bytes 6-8/9"

for pages in ("list_objects_v2", "list_objects"):
    found = []
    paginator = s3.get_paginator(pages)
    for page in paginator.paginate(Bucket="bucket", PaginationConfig={"PageSize": 2}):
        found += [o["Key"] for o in page.get("Contents", [])]
    assert found == sorted(keys, key=lambda k: k.encode()), found

big = os.urandom(20 << 20)
with open(os.environ["HOME"] + "/big", "wb") as f:
    f.write(big)
parts = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20)
s3.upload_file(f.name, "bucket", "big", Config=parts)
s3.download_file("bucket", "big", f.name + "2", Config=parts)
with open(f.name + "2", "rb") as f:
    assert f.read() == big
assert s3.head_object(Bucket="bucket", Key="big")["ETag"].endswith('-3"')

upload = s3.create_multipart_upload(Bucket="bucket", Key="m")["UploadId"]
assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket="bucket")["Uploads"]] == [upload]
etags = [
    s3.upload_part(Bucket="bucket", Key="m", UploadId=upload, PartNumber=n, Body=b"x")["ETag"]
    for n in (1, 2)
]
one, two = ({"PartNumber": n + 1, "ETag": e} for n, e in enumerate(etags))
for wrong, code in (([one, two], "EntityTooSmall"), ([two, one], "InvalidPartOrder")):
    got = error(
        s3.complete_multipart_upload, Key="m", UploadId=upload, MultipartUpload={"Parts": wrong}
    )
    assert got == (code, 400), got
s3.abort_multipart_upload(Bucket="bucket", Key="m", UploadId=upload)
assert error(s3.abort_multipart_upload, Key="m", UploadId=upload) == ("NoSuchUpload", 404)

assert error(s3.get_object, Key="none") == ("NoSuchKey", 404)
assert error(s3.get_object, Key="a/b", Range="bytes=100-") == ("InvalidRange", 416)
assert error(s3.get_object, Key="a/b", IfMatch='"x"') == ("PreconditionFailed", 412)
assert error(client("bad").get_object, Key="a/b") == ("SignatureDoesNotMatch", 403)
s3.put_object(Bucket="bucket", Key="slow", Body=b"1")
assert error(s3.get_object, Key="slow") == ("SlowDown", 503)
assert s3.get_object(Bucket="bucket", Key="slow")["Body"].read() == b"1"
s3.delete_object(Bucket="bucket", Key="big")
assert error(s3.head_object, Key="big") == ("404", 404)
PYTHON

# It ends when it is told to, and refuses what it does not understand.
kill "$pid"
wait "$pid"
pid=
if "$server" "ops=frobnicate" 2>"$dir/error"; then
	echo "a wrong rule was taken" >&2
	exit 1
fi
grep -q "unknown operation" "$dir/error"
echo "boto3 is content with the S3 server"
