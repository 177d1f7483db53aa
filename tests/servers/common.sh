# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What the scripts that start servers share. A script sets `self` (its name in messages) and `dir`
# (the server's folder, absolute) before it calls these functions.

# shellcheck disable=SC2154 # set by the script
say()
{
	echo "$self: $*" >&2
}

die()
{
	say "$*"
	exit 1
}

# need COMMAND...: all installed, else exit status 77
need()
{
	for command in "$@"; do
		command -v "$command" >/dev/null || {
			say "$command is not installed; scripts/install-deps live installs it"
			exit 77
		}
	done
}

# What else decides how clients find a server, and must not: for the file `env`.
write_env_of_clients()
{
	cat <<END
unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_CA_BUNDLE AWS_DEFAULT_REGION
unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3
export AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID
export AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY
export AWS_REGION=$AWS_REGION
export AWS_EC2_METADATA_DISABLED=true
export no_proxy='*' NO_PROXY='*'
END
}

# free_ports N: N free TCP ports. Not from the range that outgoing connections take theirs from: a
# server that was killed must find its port free when it comes back.
free_ports()
{
	python3 - "$1" <<'END'
import random, socket, sys

held = []
while len(held) < int(sys.argv[1]):
    sockets = []
    try:
        port = random.randint(20000, 32000)
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")):
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue
            sockets.append(sock)
            try:
                sock.bind((address, port))
            except OSError as error:
                if family == socket.AF_INET:
                    raise
        held.append((port, sockets))
    except OSError:
        for sock in sockets:
            sock.close()
print(*(port for port, _ in held))
END
}

has_ipv6()
{
	python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' 2>/dev/null
}

# born PID: when the process started, in ticks since boot; nothing when it is gone or a zombie. What
# follows the last ")" of the line is: state, ppid, ... the start time is the 20th of these.
born()
{
	sed -n 's/.*) \([^Z].*\)/\1/p' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

# A process of ours is known by its pid and its time of birth: pids are used again.
is_running()
{
	read -r pid birth 2>/dev/null <"$dir/$1.pid" || return 1
	[ -n "$birth" ] && [ "$(born "$pid")" = "$birth" ]
}

pid_of()
{
	read -r pid birth <"$dir/$1.pid" && echo "$pid"
}

# launch NAME COMMAND...: a process in a session of its own, which holds none of our descriptors
launch()
{
	launched=$1
	shift
	setsid "$@" </dev/null >>"$dir/log/$launched.out" 2>&1 3>&- 4>&- &
	echo "$! $(born $!)" >"$dir/$launched.pid"
}

# show_log NAME: the end of what it said
show_log()
{
	for file in "$dir/log/$1.out" "$dir/log/$1.log"; do
		[ ! -s "$file" ] || { echo "--- $file" && tail -n 20 "$file"; } >&2
	done
}

# await NAME SECONDS COMMAND...: until the command succeeds, while the process runs
await()
{
	awaited=$1
	tries=$(($2 * 20))
	shift 2
	until "$@" >/dev/null 2>&1; do
		is_running "$awaited" || { show_log "$awaited"; die "$awaited ended while it started"; }
		tries=$((tries - 1))
		[ $tries -gt 0 ] || { show_log "$awaited"; die "$awaited does not come up"; }
		sleep 0.05
	done
}

# end_process NAME: ends it, forcibly after 10 seconds; nothing when it is not ours or gone
end_process()
{
	if is_running "$1"; then
		kill -CONT "$pid" 2>/dev/null
		kill -TERM "$pid" 2>/dev/null
		tries=200
		while is_running "$1" && [ $tries -gt 0 ]; do
			sleep 0.05
			tries=$((tries - 1))
		done
		! is_running "$1" || kill -KILL "$pid" 2>/dev/null
	fi
	rm -f "$dir/$1.pid"
}

# make_dir MARK: an empty folder, or one that the same script made earlier and whose servers ended
make_dir()
{
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd -P)
	for file in "$dir"/*.pid; do
		[ -e "$file" ] || continue
		! is_running "$(basename "$file" .pid)" ||
			die "$dir: $(basename "$file" .pid) still runs; stop it first"
	done
	if [ -n "$(ls -A "$dir")" ]; then
		[ -e "$dir/$1" ] || die "$dir: neither empty nor made by this script"
		rm -rf "${dir:?}"/*
	fi
	: >"$dir/$1"
	mkdir "$dir/log"
}

# request EXPECTED-STATUS [CURL-OPTION]... URL: whether a signed request gets this status. The curl
# of Debian 12 signs the hash of an empty payload and does not send it: it is told here.
request()
{
	expected=$1
	shift
	[ "$(curl -sS -o /dev/null -w '%{http_code}' --max-time 30 --noproxy '*' \
		--aws-sigv4 "aws:amz:$AWS_REGION:s3" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
		-u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$@")" = "$expected" ]
}

# Certificates in $dir/tls: ca.crt, and name.crt with name.key for the names server (right ones),
# wrong (another host's) and expired.
make_certificates()
{
	mkdir -p "$dir/tls"
	(
		cd "$dir/tls"
		names='DNS:s3.localhost,DNS:*.s3.localhost,DNS:localhost,IP:127.0.0.1,IP:::1'
		[ -z "$1" ] || names="$names,$1"
		cat >ca.conf <<END
[ca]
default_ca = test_ca
[test_ca]
database = index.txt
serial = serial
new_certs_dir = .
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[server]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = $names
[wrong]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:other.example
END
		: >index.txt
		echo 1000 >serial
		key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
		# shellcheck disable=SC2086 # a list of words
		openssl req -x509 $key -days 3650 -subj "/CN=kvtier test CA" \
			-addext basicConstraints=critical,CA:TRUE \
			-addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.crt
		for kind in server wrong expired; do
			section=server
			[ $kind != wrong ] || section=wrong
			period="-days 3650"
			[ $kind != expired ] || period="-startdate 20200101000000Z -enddate 20200102000000Z"
			# shellcheck disable=SC2086 # lists of words
			openssl req -new $key -subj "/CN=kvtier test $kind" -keyout $kind.key \
				-out $kind.csr
			# shellcheck disable=SC2086
			openssl ca -batch -config ca.conf -cert ca.crt -keyfile ca.key $period \
				-extensions $section -in $kind.csr -out $kind.crt -notext
		done
		chmod 644 ./*.key
	) >"$dir/log/openssl.out" 2>&1 || { show_log openssl; die "openssl could not make certificates"; }
}
