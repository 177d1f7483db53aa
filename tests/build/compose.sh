# SPDX-License-Identifier: Apache-2.0
# The files in docker/ as far as they can be checked without an engine: docker-compose understands
# compose.yml, all images are pinned, every file that is mounted is there, what the proxy's templates
# want is set, nginx accepts them, and the runner's variables are those that tests/servers/rgw gives.
. "$(dirname "$0")/common.sh"
cd "$KVT_SOURCE_DIR"

for command in docker-compose nginx openssl; do
	command -v $command >/dev/null || {
		echo "skipped: $command is not installed; scripts/install-deps live installs it"
		exit 77
	}
done
docker-compose -f docker/compose.yml config >"$scratch/config.yml" ||
	fail "docker-compose refuses docker/compose.yml"
[ -s "$scratch/config.yml" ] || finish

grep -E '^ *image:' "$scratch/config.yml" | grep -vE 'image: (kvtier-runner|[^ ]+:[A-Za-z0-9.-]*[0-9][A-Za-z0-9.-]*)$' &&
	fail "an image without a pinned version"
grep -E '^ *image: .*:latest' "$scratch/config.yml" && fail "an image that is the latest"

# Mounted files and folders, as config shows them with absolute paths.
sed -n 's/^ *- \(\/[^:]*\):.*/\1/p' "$scratch/config.yml" | sort -u >"$scratch/mounted"
while read -r path; do
	[ -e "$path" ] || fail "docker/compose.yml mounts $path, which is not there"
done <"$scratch/mounted"
for script in run runner certificates; do
	[ -x "docker/$script" ] || fail "docker/$script: not executable"
	sh -n "docker/$script" || fail "docker/$script: not a shell script"
done

# value NAME: of a variable in a service's environment
value()
{
	sed -n "s/^ *$1: '\{0,1\}\([^']*\)'\{0,1\}\$/\1/p" "$scratch/config.yml" | head -n 1
}

docker/certificates "$scratch" || fail "docker/certificates failed"
for name in server wrong expired; do
	openssl x509 -in "$scratch/$name.crt" -noout -ext subjectAltName >"$scratch/names" ||
		fail "$name.crt: no certificate"
	[ "$name" = wrong ] || grep -q 'DNS:proxy' "$scratch/names" ||
		fail "$name.crt: not for the host that compose.yml calls proxy"
done

# As the image's entry point replaces them; with servers that this machine can resolve.
mkdir "$scratch/conf.d"
for template in tests/servers/proxy.conf.template docker/extra.conf.template; do
	script=
	# shellcheck disable=SC2013 # names without blanks
	for name in $(grep -o '\${[A-Z_]*}' "$template" | tr -d '${}' | sort -u); do
		set_to=$(value "$name")
		[ -n "$set_to" ] || fail "$template: $name is not set in docker/compose.yml"
		case $name in
		KVT_UPSTREAM) set_to=127.0.0.1:9000 ;;
		KVT_TLS_DIR) set_to=$scratch ;;
		esac
		script="$script;s|\${$name}|$set_to|g"
	done
	sed "${script#;}" "$template" >"$scratch/conf.d/$(basename "$template" .template)"
done
cat >"$scratch/nginx.conf" <<END
pid $scratch/nginx.pid;
error_log stderr warn;
events { worker_connections 64; }
http {
	client_body_temp_path $scratch/body;
	proxy_temp_path $scratch/temp;
	fastcgi_temp_path $scratch/fastcgi;
	uwsgi_temp_path $scratch/uwsgi;
	scgi_temp_path $scratch/scgi;
	include $scratch/conf.d/*.conf;
}
END
# It reads them and minds no port that somebody else has.
nginx -t -q -p "$scratch" -e stderr -c "$scratch/nginx.conf" || fail "nginx refuses the templates"

# Endpoints of the proxy name ports that it listens on.
for port in $(grep -o 'https\{0,1\}://proxy:[0-9]*' "$scratch/config.yml" | sed 's/.*://' | sort -u); do
	grep -qE "listen $port( ssl)?;" "$scratch"/conf.d/*.conf ||
		fail "docker/compose.yml: nothing listens on the proxy's port $port"
done
for name in $(grep -o 'KVT_S3_[A-Z0-9_]*:' "$scratch/config.yml" | tr -d : | sort -u); do
	grep -q "export $name=" tests/servers/rgw ||
		fail "docker/compose.yml: $name, which tests/servers/rgw does not know"
done
finish
