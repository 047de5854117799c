# Sourced by the other tools: where things are. Starts and makes nothing.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

fail() {
    echo "cerebro: $*" >&2
    exit 1
}

# The newest server of the machine, unless the caller's PG_CONFIG names one.
find_pg_config() {
    local newest
    newest=$(find /usr/lib/postgresql/*/bin -name postgres 2>/dev/null | sort -V | tail -n 1)
    echo "${PG_CONFIG:-${newest:+${newest%postgres}pg_config}}"
}

# The same of the private copy that tools/cluster makes of that server, or the server's own where there is no copy.
own_pg_config() {
    local config own
    config=$(find_pg_config)
    own=$(own_folder)$("$config" --bindir)/pg_config
    if [ -x "$own" ]; then echo "$own"; else echo "$config"; fi
}

own_folder() {
    echo "$(local_dir)/server"
}

# PostgreSQL refuses to run as root.
server_user() {
    if [ "$EUID" -eq 0 ]; then echo postgres; else id -un; fi
}

as_server() {
    if [ "$EUID" -eq 0 ]; then
        (cd / && setpriv --reuid=postgres --regid=postgres --init-groups --reset-env "$@")
    else
        "$@"
    fi
}

# Cluster and venv stand in .local. The server's user must be able to enter it: where that user cannot
# (a checkout below root's home, say), .local is a link to a folder of this checkout's own elsewhere.
local_dir() {
    if as_server test -x "$root" && as_server test -r "$root"; then
        echo "$root/.local"
    else
        echo "/var/lib/cerebro-dev/$(path_hash)"
    fi
}

path_hash() {
    printf %s "$root" | sha256sum | cut -c 1-12
}

# A Unix socket's path may have 107 bytes, and the file's own name takes 14 of them.
socket_dir() {
    local folder
    folder=$(local_dir)/socket
    if [ ${#folder} -le 90 ]; then echo "$folder"; else echo "/tmp/cerebro-$(id -u "$(server_user)")-$(path_hash)"; fi
}
