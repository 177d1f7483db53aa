# SPDX-License-Identifier: Apache-2.0
# The manual pages say what is so: tables that are made from the headers are up to date, every
# exported function, struct member and option is described, C blocks are excerpts of compiled code,
# and the messages that an operator is told about are messages of the library.
. "$(dirname "$0")/common.sh"
cd "$KVT_SOURCE_DIR"
man=docs/man

# 1. Tables
docs/error-table.sh >"$scratch/kvtier.3"
diff -u $man/kvtier.3 "$scratch/kvtier.3" >&2 ||
	fail "kvtier.3: a table is stale, run docs/error-table.sh --write"
[ "$(grep -c '^\.It Dv KVT_CLASS_' $man/kvtier.3)" -ge 11 ] || fail "kvtier.3: no table of classes"
[ "$(grep -c '^\.It Dv KVT_E[A-Z0-9]* Ta ' $man/kvtier.3)" -ge 34 ] || fail "kvtier.3: no table of codes"

# 2. Functions
count=0
for function in $(api_functions); do
	grep -qE "^\.F[no] $function( |\$)" $man/kvtier.3 $man/kvtier-backend.3 ||
		fail "$function: no page declares it"
	count=$((count + 1))
done
[ "$count" -ge 50 ] || fail "found only $count functions"

# members HEADER STRUCT: the names of a struct's members, one a line
members()
{
	awk -v head="struct $2 {" '$0 == head { inside = 1; next } /^};/ { inside = 0 } inside' "$1" |
		tr '\n\t' '  ' | sed -E 's,/\*([^*]|\*[^/])*\*/,,g' | tr ';' '\n' |
		sed -E 's/.*\(\*([a-z_0-9]+)\)\(.*/\1/; s/\[[A-Z_0-9]+\]//g' | awk -F, '
		{ for (i = 1; i <= NF; i++) { n = split($i, word, /[ *]+/)
			while (n && word[n] == "") n--
			if (n) print word[n] } }'
}

# described HEADER PAGE STRUCTS...: every member is named as a variable or function of the page
described()
{
	header=include/kvtier/$1 page=$man/$2
	shift 2
	grep -E '^\.(It )?(V[at]|F[na]|Pq) |^\.It ' "$page" | tr ' ,()[]' '\n\n\n\n\n\n' | sort -u >"$scratch/words"
	for struct in "$@"; do
		count=0
		for member in $(members "$header" "$struct"); do
			[ "$member" != reserved ] || continue
			grep -qxE "(host->|io->|key\.)?$member" "$scratch/words" ||
				fail "$page: $struct.$member is not described"
			count=$((count + 1))
		done
		[ "$count" -ge 3 ] || fail "$header: found only $count members of $struct"
	done
}

# 3. Members. The sizes and the services' own pointers go without saying.
described kvtier.h kvtier.3 kvt_store_options kvt_store_info kvt_worker_options kvt_transfer \
	kvt_rows kvt_submit_options kvt_result kvt_stats kvt_device_options kvt_object_stat \
	kvt_verify_summary kvt_gc_options kvt_gc_summary kvt_geometry kvt_file_ops kvt_batch_result
described ready.h kvtier.3 kvt_ready
described backend.h kvtier-backend.3 kvt_backend_ops kvt_backend_limits kvt_object_info

# statuses and values of enums that a page lists
for name in $(grep -oE 'X\([A-Z_]+, [0-9]+,' include/kvtier/kvtier.h | grep -oE '[A-Z_]{2,}'); do
	grep -qE "^\.It $name Ta" $man/kvtier.3 || fail "kvtier.3: status $name is not described"
done
for name in $(grep -ohE '\b(KVT_CAP|KVT_IO)_[A-Z_]+' include/kvtier/backend.h | sort -u); do
	grep -q "^\.It Dv $name\$" $man/kvtier-backend.3 ||
		fail "kvtier-backend.3: $name is not described"
done

# 4. Options with their defaults, as the library lists them
# options PAGE LEAST FILES...: each option that the files list is an item of the page
options()
{
	page=$1 least=$2 count=0
	shift 2
	cat "$@" | sed -n '/kvt_option_spec .*\[\] = {/,/^};/p' | tr '\n\t' '  ' |
		grep -oE '\{"[a-z_]+", +(NULL|"[^"]*"), +"[^"]*"' | tr -d '{"' |
		awk -F', *' '{ print $1, $2 }' >"$scratch/options"
	while read -r name default; do
		case $default in
		NULL) pattern="^\.It Cm $name( Ns = .*)?\$" ;;
		*) pattern="^\.It.*Cm $name Pq $default( , .*)?\$" ;;
		esac
		grep -qE "$pattern" "$man/$page" ||
			fail "$page: option $name, default $default, is not described so"
		count=$((count + 1))
	done <"$scratch/options"
	[ "$count" -ge "$least" ] || fail "$page: found only $count options"
}
options kvtier-file.5 25 backends/file/file.c backends/mem/mem.c backends/fault/rules.c src/settings.c
options kvtier-s3.5 30 backends/s3/options.c
options kvtier-libs3.5 9 backends/libs3/config.c

# 5. C blocks of section 3
cat examples/*.c backends/*/*.c include/kvtier/*.h | tr -s ' \t\n' '   ' | tr -s ' ' >"$scratch/compiled"
count=0
for page in $man/*.3; do
	rm -f "$scratch"/block.*
	awk -v prefix="$scratch/block." '
	/^\.Bd -literal/ { inside = 1; number++; next }
	/^\.Ed/ { inside = 0 }
	inside { gsub(/\\&/, ""); gsub(/\\e/, "\\"); print > (prefix number) }' "$page"
	for block in "$scratch"/block.*; do
		[ -e "$block" ] || continue
		count=$((count + 1))
		awk -v haystack="$scratch/compiled" '
		function check() {
			if (piece != "" && !index(text, piece)) {
				print "not found in compiled code: " piece
				bad = 1
			}
			piece = ""
		}
		BEGIN { getline text <haystack }
		/^[ \t]*\.\.\.$/ { check(); next }
		NF { $1 = $1; piece = piece (piece == "" ? "" : " ") $0 }
		END { check(); exit bad }' "$block" >"$scratch/found" || {
			cat "$scratch/found" >&2
			fail "$page: block $(basename "$block" | sed 's/.*\.//') is no excerpt of compiled code"
		}
	done
done
[ "$count" -ge 5 ] || fail "found only $count C blocks"

# 6. Messages that an operator is told about; strings that are split over lines are joined
# messages PAGE LEAST FILES...: each message of the page is in a string of the files
messages()
{
	page=$1 least=$2
	shift 2
	cat "$@" | tr '\n\t\\' '   ' | tr -s ' ' | sed 's/" "//g' >"$scratch/strings"
	sed -n '/^\.Sh DIAGNOSTICS/,/^\.Sh SE/s/^\.It Dq //p' "$man/$page" >"$scratch/messages"
	[ "$(wc -l <"$scratch/messages")" -ge "$least" ] || fail "$page: hardly any message"
	while read -r message; do
		grep -qF -- "$message" "$scratch/strings" || fail "$page: nothing says \"$message\""
	done <"$scratch/messages"
}
messages kvtier-file.5 10 src/*.c backends/file/*.c include/kvtier/error.h
messages kvtier-s3.5 8 backends/s3/*.c

# 7. The second opinion on the markup
if command -v mandoc >/dev/null; then
	mandoc -Tlint -W warning $man/* >&2 || fail "mandoc: see above"
else
	echo "$0: mandoc is not here: the pages are not linted"
fi
finish
