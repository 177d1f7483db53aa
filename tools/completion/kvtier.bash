# SPDX-License-Identifier: Apache-2.0
# Completion of kvtier(1) for bash: commands, their options as --help lists them, and values.
# shellcheck shell=bash

_kvtier_options()
{
	"$1" "$2" --help 2>/dev/null |
		sed -n 's/^  \(--[a-z-]*\|-o\)\([ ]\([^ ]*\)\)\?.*/\1/p'
}

_kvtier()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous= command=${COMP_WORDS[1]-}
	local commands='put get stat ls rm verify bench replay probe gc name plan version help'

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$current")
		return
	fi
	previous=${COMP_WORDS[COMP_CWORD - 1]}
	case $command in
	help)
		((COMP_CWORD == 2)) &&
			mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
		return
		;;
	esac
	case $previous in
	--device)
		mapfile -t COMPREPLY < <(compgen -W 'host cuda' -- "$current")
		compopt -o nospace 2>/dev/null
		return
		;;
	--op)
		mapfile -t COMPREPLY < <(compgen -W 'store load both' -- "$current")
		return
		;;
	--verify)
		mapfile -t COMPREPLY < <(compgen -W 'on off' -- "$current")
		return
		;;
	--speed)
		mapfile -t COMPREPLY < <(compgen -W 'max 1 10' -- "$current")
		return
		;;
	--fields | --report)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
		;;
	--store)
		# A colon breaks words: what follows it is the present one.
		mapfile -t COMPREPLY < <(compgen -W 'file:// s3:// mem:' -- "$current")
		compopt -o nospace 2>/dev/null
		return
		;;
	--namespace | --rank | --chunk-bytes | --chunks | --geometry | --partial | --lanes | \
		--depth | --jobs | --in-flight | --memory-bytes | --staging-bytes | --part-bytes | \
		--seed | --block-bytes | --block-tokens | --requests | --concurrency | \
		--job-blocks | --prefill-tokens-per-s | --max-bytes | --older-than)
		return
		;;
	:)
		if [[ ${COMP_WORDS[COMP_CWORD - 2]-} == file ]]; then
			compopt -o nospace 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -d -P // -- "${current#//}")
			return
		fi
		;;
	esac
	if [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(
			compgen -W "$(_kvtier_options "${COMP_WORDS[0]}" "$command")" -- "$current"
		)
		return
	fi
	case $command in
	put | get | plan | replay)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		;;
	esac
}

complete -F _kvtier kvtier
