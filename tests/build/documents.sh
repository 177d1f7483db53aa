# SPDX-License-Identifier: Apache-2.0
# The documents say what is so: every C block is an excerpt of a file that is compiled, every kvtier
# command of a README block runs, its builds configure, and every file that a document links to exists.
. "$(dirname "$0")/common.sh"
cd "$KVT_SOURCE_DIR"

documents="README.md CONTRIBUTING.md"
for document in docs/*.md; do
	[ -e "$document" ] && documents="$documents $document"
done

# blocks LANGUAGE FILE: writes each fenced block of a language to $scratch/block.N, prints how many
blocks()
{
	rm -f "$scratch"/block.*
	awk -v language="$1" -v prefix="$scratch/block." '
	$0 == "```" && inside { inside = 0; next }
	$0 == "```" language { inside = 1; count++; next }
	inside { print > (prefix count) }
	END { print count + 0 }' "$2"
}

# 1. C blocks, whatever the white space. A line of three dots leaves something out.
cat examples/*.c backends/*/*.c include/kvtier/*.h tests/*.c | tr -d ' \t\n' >"$scratch/compiled"
for document in $documents; do
	count=$(blocks c "$document")
	number=0
	while [ "$number" -lt "$count" ]; do
		number=$((number + 1))
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
		{ gsub(/[ \t]/, ""); piece = piece $0 }
		END { check(); exit bad }' "$scratch/block.$number" >"$scratch/found" || {
			cat "$scratch/found" >&2
			fail "$document: C block $number is no excerpt of compiled code"
		}
	done
done

# 2. The commands of the README, on a store in a scratch folder
kvtier=${KVTIER:-$KVT_BUILD_DIR/kvtier}
mkdir "$scratch/run"
head -c 300000 /dev/urandom >"$scratch/run/chunk.bin"
count=$(blocks sh README.md)
cat "$scratch"/block.* 2>/dev/null | sed -nE 's/^(kvtier .*)/\1/p' | sed 's/ *#.*//' |
	sed "s,file:///[a-z/]*,file://$scratch/store,g" >"$scratch/commands"
mkdir "$scratch/store"
[ "$(wc -l <"$scratch/commands")" -ge 6 ] || fail "README.md: hardly any kvtier command in its blocks"
mkdir "$scratch/run/tests"
cp -r tests/data "$scratch/run/tests/data"
while read -r line; do
	(
		cd "$scratch/run"
		PATH=$(dirname "$kvtier"):$PATH timeout 100 sh -c "$line"
	) >"$scratch/log" 2>&1 </dev/null || {
		cat "$scratch/log" >&2
		fail "README.md: failed: $line"
	}
done <"$scratch/commands"
for script in $(grep -ohE '\./scripts/[a-z-]+' README.md | sort -u); do
	[ -x "$script" ] || fail "README.md: $script is not there"
done
[ "$(wc -l <README.md)" -lt 150 ] || fail "README.md has 150 lines or more"

# 3. The builds of the README and of the demo configure with what "install-deps build" installs: the
# libraries that only tests need are hidden. The demo has a folder of its own, for it leaves tests out.
cat >"$scratch/pkg-config" <<'END'
#!/bin/sh
case "$*" in *cmocka* | *microhttpd*) exit 1 ;; esac
exec pkg-config "$@"
END
chmod 755 "$scratch/pkg-config"
grep -hoE '(^|[ (])cmake (-S \. )?-B [a-z-]+( -[A-Z][^ &]*( Ninja)?)*' README.md scripts/demo |
	sed 's/^[ (]*//' >"$scratch/configures"
[ "$(wc -l <"$scratch/configures")" -ge 3 ] || fail "README.md, scripts/demo: hardly any build"
while read -r line; do
	folder=$(echo "$line" | sed -E 's/.* -B ([a-z-]+).*/\1/')
	case $folder in
	build-*) ;;
	*) fail "'$line' turns the tests of $folder/ off" ;;
	esac
	PKG_CONFIG=$scratch/pkg-config sh -c "$(echo "$line" | sed "s, -B [a-z-]*, -B $scratch/$folder,")" \
		>"$scratch/log" 2>&1 </dev/null || {
		cat "$scratch/log" >&2
		fail "on a machine without the libraries of the tests: $line"
	}
done <"$scratch/configures"

# 4. Links and file names
for document in $documents; do
	for target in $(grep -oE '\]\([^)#:]+\)' "$document" | sed -E 's/^\]\((.*)\)$/\1/'); do
		[ -e "$(dirname "$document")/$target" ] || fail "$document: links to $target"
	done
	for target in $(grep -ohE '`(src|docs|backends|tests|tools|examples|bench|cmake|scripts|include)/[A-Za-z0-9_./-]+`' \
		"$document" | tr -d '\`'); do
		[ -e "$target" ] || fail "$document: names $target, which is not there"
	done
done
finish
