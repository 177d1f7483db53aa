# SPDX-License-Identifier: Apache-2.0
# What the house style asks for and a machine can see: licence lines, lengths, calls that the
# library must not make, and words that do not belong into a finished file.
. "$(dirname "$0")/common.sh"
cd "$KVT_SOURCE_DIR"

# report WHAT PATTERN FILES...: fails for each line that matches
report()
{
	what=$1 pattern=$2
	shift 2
	if grep -nE "$pattern" /dev/null "$@"; then
		fail "$what"
	fi
}

find src backends include tools tests examples bench -name '*.[ch]' | sort >"$scratch/c"
find cmake scripts tests .githooks .ci -type f ! -name '*.[ch]' ! -path 'tests/data/*' \
	! -path 'tests/fuzz/corpus/*' | sort >"$scratch/scripts"
while read -r file; do
	head -n 1 "$file" | grep -qF '/* SPDX-License-Identifier: Apache-2.0 */' ||
		fail "$file: the first line is no licence line"
	# A public header is as long as what it promises, and the tables of one module's test stay
	# together.
	case $file in
	include/*) continue ;;
	tests/test_*) most=1000 ;;
	*) most=600 ;;
	esac
	lines=$(wc -l <"$file")
	if [ "$lines" -gt "$most" ] && ! sed -n 1,30p "$file" | grep -qi 'one file'; then
		fail "$file: $lines lines; past $most split it, or say at the top why it is one file"
	fi
done <"$scratch/c"
while read -r file; do
	case $file in *.in | *.md | *.json*) continue ;; esac
	head -n 2 "$file" | grep -qF 'SPDX-License-Identifier: Apache-2.0' ||
		fail "$file: no licence line"
done <"$scratch/scripts"

# shellcheck disable=SC2046 # names without spaces
report "calls that do not bound or report" \
	'\b(strcpy|strcat|sprintf|vsprintf|atoi|atol|strtok|rand|gets)\(' $(cat "$scratch/c")
# shellcheck disable=SC2046
report "the library never exits, aborts or prints" \
	'\b(exit|_exit|abort|printf|puts|perror|fprintf)\(' $(grep -E '^(src|backends)/' "$scratch/c")
# This line names the words that it looks for.
# shellcheck disable=SC2046
report "unfinished" "$(printf '\\b(TO%s|FIX%s|X%s)\\b' DO ME XX)" \
	$(cat "$scratch/c") $(cat "$scratch/scripts")
# shellcheck disable=SC2046
report "a test waits for events, it does not sleep" '\b(sleep|usleep)\(' \
	$(grep -E '^tests/' "$scratch/c")
# shellcheck disable=SC2046
report "trailing white space" '[ 	]+$' $(cat "$scratch/c") $(cat "$scratch/scripts")
finish
