# SPDX-License-Identifier: Apache-2.0
# Dependencies point one way. A backend stands on the headers for backends, a device on those for
# devices, both besides on their own folder; the core never looks into a backend or a device; the
# tool and the examples use the library as anybody would.
. "$(dirname "$0")/common.sh"
cd "$KVT_SOURCE_DIR"

# includes FILE: "quote name" or "angle name" for each #include
includes()
{
	sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"([^"]+)".*/quote \1/p
		 s/^[[:space:]]*#[[:space:]]*include[[:space:]]*<([^>]+)>.*/angle \1/p' "$1"
}

# check FILE ALLOWED: project headers in angle brackets must match the pattern; headers in quotes
# must lie beside the file.
check()
{
	includes "$1" >"$scratch/includes"
	while read -r kind name; do
		case $kind:$name in
		angle:kvtier/*)
			echo "$name" | grep -qxE "kvtier/($2)\.h" || fail "$1: includes <$name>"
			;;
		quote:*)
			case $name in */*) fail "$1: includes \"$name\" of another folder" ;; esac
			[ -e "$(dirname "$1")/$name" ] || fail "$1: includes \"$name\" of another folder"
			;;
		esac
	done <"$scratch/includes"
}

count=0
for file in backends/*/*.[ch]; do
	[ -e "$file" ] || continue
	case $file in
	backends/cuda/*) check "$file" 'device|ready|backend|error|export' ;; # a device
	*) check "$file" 'backend|error|export' ;;
	esac
	count=$((count + 1))
done
[ "$count" -gt 0 ] || fail "found no backend"
for file in src/*.[ch]; do
	check "$file" '[a-z]+'
	if grep -nE '#[[:space:]]*include.*backends/' "$file"; then
		fail "$file: includes a backend or a device"
	fi
done
for file in examples/*.c tools/*.[ch]; do
	[ -e "$file" ] || continue
	check "$file" 'kvtier|backend|device|error|version'
done
finish
