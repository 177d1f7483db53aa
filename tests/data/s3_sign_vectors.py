#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signatures of requests made up at random, by botocore: s3_sign_vectors.py > s3_sign_vectors.json

What botocore decides for itself (the payload's hash, the time) is given, so that the output depends
on the seed alone.
"""
import datetime
import json
import random
import sys
from urllib.parse import quote

import botocore
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

random = random.Random(20130524)
PIECES = ["kv", "ab", "0123456789abcdef", "a b", "+", "%", "%2F", "~", "\u00fc", "=", "(", ")", "@",
          ":", "*", "'", ",", "!", "$", "&", ";", "?", "#", "[", "]", "{", "|", "}", "\\", "^", "`",
          "\"", "<", ">", "\u20ac", "\U0001f600", "a+b c%d", ".", "..", "-", "_", "e\u0301"]
VALUES = ["", "1", "2", "a/b", "2~xqk1/+=", "VXBsb2FkSWQ=.-_~", "a b", "+", "%", "\u00fc", "A", "a",
          "Z", "~", "-", "=", "&", "a=b&c=d", "1000", "url", "*", "'()!", ":@,;"]
NAMES = ["uploadId", "uploads", "partNumber", "prefix", "max-keys", "list-type", "delimiter", "a",
         "a-", "a.", "a~", "ab", "A", "a b", "a%", "\u00fc", "continuation-token", "x+y", "a=b"]
HEADERS = ["range", "x-amz-copy-source", "content-type", "if-match", "if-none-match", "cache-control",
           "x-amz-checksum-crc32c", "x-amz-meta-a", "x-amz-meta-b", "x-amz-server-side-encryption",
           "x-amz-acl", "a-first", "zz-last", "x-amz-date-b", "x-amz"]
HEADER_VALUES = ["bytes=0-9", "a", "a  b", "  a b  ", "a \t b", "a\tb", "\"etag\"", "*", "a   b   c",
                 "\"a  b\"", "", "text/plain; charset=utf-8", "x" * 300]
HOSTS = ["examplebucket.s3.amazonaws.com", "s3.eu-central-1.amazonaws.com", "127.0.0.1:9000",
         "[::1]:9000", "localhost", "minio.internal:443", "a-b.c_d.example:8080"]
REGIONS = ["us-east-1", "eu-central-1", "default", "r", "x" * 64]
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
TEXT = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


def text(length):
    return "".join(random.choice(TEXT) for _ in range(length))


def key():
    separators = ["/", "/", "/", "//", "/./", "/../", ""]
    parts = []
    for _ in range(random.randint(1, 6)):
        parts += [random.choice(PIECES), random.choice(separators)]
    return "/" + "".join(parts)


class Signer(S3SigV4Auth):
    def payload(self, request):
        return self.given_payload


def vector(now, access_key, secret_key, token, region):
    path = key()
    query = [(random.choice(NAMES), random.choice(VALUES)) for _ in range(random.randint(0, 5))]
    headers = {name: random.choice(HEADER_VALUES)
               for name in random.sample(HEADERS, random.randint(0, 5))}
    host = random.choice(HOSTS)
    method = random.choice(["GET", "PUT", "HEAD", "POST", "DELETE"])
    signer = Signer(Credentials(access_key, secret_key, token), "s3", region)
    signer.given_payload = random.choice(["UNSIGNED-PAYLOAD", EMPTY, "%064x" % random.getrandbits(256)])
    encoded = quote(path, safe="/-._~")
    request = AWSRequest(method=method, url="http://" + host + encoded, headers=headers)
    stamp = datetime.datetime.fromtimestamp(now, datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    request.context["timestamp"] = stamp
    signer._modify_request_before_signing(request)
    request.url += "?" if query else ""
    request.url += "&".join(quote(name, safe="-._~") + "=" + quote(value, safe="-._~")
                            for name, value in query)
    canonical = signer.canonical_request(request)
    canonical_query = canonical.split("\n")[2]
    assert canonical.split("\n")[1] == encoded, canonical
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    return {
        "method": method, "key": path, "path": encoded, "parameters": query,
        "query": canonical_query, "headers": sorted(headers.items()), "host": host,
        "payload": signer.given_payload, "region": region, "access_key": access_key,
        "secret_key": secret_key, "token": token, "now": now, "date": stamp,
        "signed_headers": signer.signed_headers(signer.headers_to_sign(request)),
        "signature": signature,
    }


vectors = []
now = 1369353600
access_key, secret_key, token, region = "AKIAIOSFODNN7EXAMPLE", text(40), None, "us-east-1"
for number in range(120):
    if number % 6 == 5:
        access_key = random.choice([text(20), text(128), text(1), "a b+c", "user@example.org"])
    if number % 5 == 4:
        secret_key = text(random.choice([1, 40, 59, 60, 61, 64, 200]))
    if number % 7 == 6:
        token = random.choice([None, text(300), text(4096)] if number < 60 else [None, text(50)])
    if number % 4 == 3:
        region = random.choice(REGIONS)
    # Seconds before and after midnight, leap days, the ends of years and centuries.
    now = random.choice([now, now + 1, now - now % 86400 + 86399, now - now % 86400 + 86400,
                         951782399, 951782400, 951868799, 1709164800, 1709251199, 1735689599,
                         1735689600, 4107542399, 4107542400, 0, 253402300799,
                         random.randrange(253402300800)])
    now = min(now, 253402300799)
    vectors.append(vector(now, access_key, secret_key, token, region))
    if token is not None and len(token) > 1000:
        token = text(16)
json.dump({"writer": "botocore " + botocore.__version__, "vectors": vectors}, sys.stdout, indent=1,
          sort_keys=True)
print()
