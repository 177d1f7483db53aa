# SPDX-License-Identifier: Apache-2.0
# Each manual page formats without a warning, and each page and function that it should have exists.
. "$(dirname "$0")/common.sh"

command -v man >/dev/null || {
	echo "$0: skipped: no man here"
	exit 77
}
pages=$(find "$KVT_SOURCE_DIR/docs" -name '*.[1-8]')
for name in kvtier.1 kvtier.3 kvtier-backend.3 kvtier-file.5 kvtier-cuda.5 kvtier-format.5 kvtier-s3.5 \
	kvtier-libs3.5; do
	echo "$pages" | grep -q "/$name\$" || fail "$name: no such page"
done
for page in $pages; do
	warnings=$(MANROFFSEQ='' MANWIDTH=80 man --warnings=mac -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 \
		>/dev/null || true)
	[ -z "$warnings" ] || fail "$page: $warnings"
done
finish
