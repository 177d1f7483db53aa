# SPDX-License-Identifier: Apache-2.0
# The shared library exports what the export map lists, the map lists every KVT_API function of the
# public headers, and loadable modules export their entry only.
. "$(dirname "$0")/common.sh"

# same WHAT EXPECTED FOUND: two sorted files
same()
{
	comm -23 "$2" "$3" | while read -r name; do echo "$1: missing: $name" >&2; done
	comm -13 "$2" "$3" | while read -r name; do echo "$1: too much: $name" >&2; done
	cmp -s "$2" "$3" || fail "$1: differs"
}

api_functions >"$scratch/headers"
[ "$(wc -l <"$scratch/headers")" -gt 40 ] || fail "the headers declare hardly any function"
sed -nE '/^global:/,/^local:/s/^\t(kvt_[a-z0-9_]+);$/\1/p' "$KVT_SOURCE_DIR/src/kvtier.map" |
	sort -u >"$scratch/map"
same "src/kvtier.map against the headers" "$scratch/headers" "$scratch/map"

nm -D --defined-only "$KVT_BUILD_DIR/libkvtier.so" | awk '$2 != "A" { print $3 }' |
	sed -E 's/@@?/ /' | sort -u >"$scratch/versioned"
awk '{ print $1 }' "$scratch/versioned" >"$scratch/exported"
same "libkvtier.so against src/kvtier.map" "$scratch/map" "$scratch/exported"

awk '$2 !~ /^KVTIER_0\.1$/ { print }' "$scratch/versioned" >"$scratch/unversioned"
[ -s "$scratch/unversioned" ] && fail "exported without version: $(cat "$scratch/unversioned")"

soname=$(objdump -p "$KVT_BUILD_DIR/libkvtier.so" | awk '$1 == "SONAME" { print $2 }')
major=$(awk '$2 == "KVT_VERSION_MAJOR" { print $3 }' "$KVT_SOURCE_DIR/include/kvtier/version.h")
minor=$(awk '$2 == "KVT_VERSION_MINOR" { print $3 }' "$KVT_SOURCE_DIR/include/kvtier/version.h")
[ "$soname" = "libkvtier.so.$major.$minor" ] || fail "SONAME is $soname"

# Global names of the static library share one namespace with the program that links it.
nm -g --defined-only "$KVT_BUILD_DIR/libkvtier.a" | awk 'NF == 3 && $3 !~ /^kvt_/ { print $3 }' \
	>"$scratch/foreign"
[ -s "$scratch/foreign" ] && fail "libkvtier.a: names without prefix: $(tr '\n' ' ' <"$scratch/foreign")"

for name in skeleton; do
	module=$KVT_BUILD_DIR/modules/kvtier-backend-$name.so
	exported=$(nm -D --defined-only "$module" | awk '{ print $3 }' | tr '\n' ' ')
	[ "$exported" = "kvt_backend_entry " ] || fail "$module: exports $exported"
done
finish
