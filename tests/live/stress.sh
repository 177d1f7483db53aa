# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Many threads with random jobs, as in worker_stress, on a real server, in one bucket.
set -eu
for variable in KVT_S3_ENDPOINT KVT_S3_BUCKET AWS_ACCESS_KEY_ID; do
	eval "value=\${$variable:-}"
	[ -n "$value" ] || {
		echo "skipped: $variable is not set; tests/servers/rgw starts a server that has it"
		exit 77
	}
done
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true
export KVT_STRESS_MS="${KVT_STRESS_MS:-4000}"
exec "${KVT_BUILD_DIR:-build}/tests/test_worker_stress" \
	"s3://$KVT_S3_BUCKET/stress-$(date +%s)-$$" "endpoint=$KVT_S3_ENDPOINT"
