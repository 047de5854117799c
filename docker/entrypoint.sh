#!/usr/bin/env bash
# Starts the server; makes its cluster before, with cerebro in it, where the volume has none. The variables are those of
# the usual PostgreSQL image: POSTGRES_PASSWORD, POSTGRES_USER, POSTGRES_DB, POSTGRES_INITDB_ARGS, each also as …_FILE,
# POSTGRES_HOST_AUTH_METHOD and PGDATA; scripts in /docker-entrypoint-initdb.d run once.
set -euo pipefail

# Stands in the volume until the cluster is complete.
unfinished=$PGDATA/cerebro-unfinished

fail() {
    echo "cerebro: $*" >&2
    exit 1
}

# NAME may stand in a file that NAME_FILE names: a secret.
read_from_file() {
    local name file
    for name in "$@"; do
        file=${name}_FILE
        [ -n "${!file:-}" ] || continue
        [ -z "${!name:-}" ] || fail "$name and $file are both set: set one of them"
        [ -r "${!file}" ] || fail "$file is ${!file}, which cannot be read"
        printf -v "$name" %s "$(<"${!file}")"
        unset "$file"
    done
}

sql() {
    psql -X -q -v ON_ERROR_STOP=1 --no-password -h /var/run/postgresql -U "$POSTGRES_USER" "$@"
}

# A start that was broken off leaves nothing that anybody has used.
clear_unfinished() {
    [ ! -e "$unfinished" ] || find "$PGDATA" -mindepth 1 -delete
}

check_settings() {
    [ -w "$PGDATA" ] || fail "$PGDATA is not writable for user $(id -u): chown the folder that is mounted there"
    [ -n "${POSTGRES_PASSWORD:-}" ] || [ "$POSTGRES_HOST_AUTH_METHOD" = trust ] ||
        fail "POSTGRES_PASSWORD is not set: give the superuser a password, as in -e POSTGRES_PASSWORD=… or" \
            "-e POSTGRES_PASSWORD_FILE=/run/secrets/…"
}

# Segment sessions log in over the socket, which is open only to what runs in this container.
make_cluster() {
    # shellcheck disable=SC2086 # several words, as the name says
    initdb --username="$POSTGRES_USER" ${POSTGRES_PASSWORD:+--pwfile=/dev/stdin} --auth-local=trust \
        --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 ${POSTGRES_INITDB_ARGS:-} \
        <<<"${POSTGRES_PASSWORD:-}" >/dev/null
    touch "$unfinished"
    echo "host all all all $POSTGRES_HOST_AUTH_METHOD" >>"$PGDATA/pg_hba.conf"
    # pg_cron works in one database, and logs in over the socket as segment sessions do.
    cat >>"$PGDATA/postgresql.conf" <<END
listen_addresses = '*'
shared_preload_libraries = 'pg_cron'
cron.host = '/var/run/postgresql'
cron.database_name = '${POSTGRES_DB//\'/\'\'}'
END
}

make_databases() {
    sql -d template1 -c 'CREATE EXTENSION cerebro CASCADE'
    [ "$(sql -d template1 -At -v name="$POSTGRES_DB" <<<"SELECT count(*) FROM pg_database WHERE datname = :'name'")" = 1 ] ||
        sql -d template1 -v name="$POSTGRES_DB" <<<'CREATE DATABASE :"name"'
    sql -d "$POSTGRES_DB" -c 'SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS cerebro CASCADE' \
        -c 'CREATE EXTENSION pg_cron'
}

run_scripts() {
    local script
    for script in /docker-entrypoint-initdb.d/*; do
        case "$script" in
            *.sh) if [ -x "$script" ]; then "$script"; else bash -euo pipefail "$script"; fi ;;
            *.sql) sql -d "$POSTGRES_DB" -f "$script" ;;
            *.sql.gz) gunzip -c "$script" | sql -d "$POSTGRES_DB" ;;
        esac
    done
}

# Nobody outside can connect yet: the server listens on the socket alone.
set_up() {
    check_settings
    make_cluster
    pg_ctl -D "$PGDATA" -s -w -o "-c listen_addresses=''" start
    make_databases
    export POSTGRES_USER POSTGRES_DB PGUSER="$POSTGRES_USER" PGDATABASE="$POSTGRES_DB"
    run_scripts
    pg_ctl -D "$PGDATA" -s -w -m fast stop
    rm "$unfinished"
}

case "${1:-}" in
    -* | '') set -- postgres "$@" ;;
esac
[ "$1" = postgres ] || exec "$@"

read_from_file POSTGRES_PASSWORD POSTGRES_USER POSTGRES_DB POSTGRES_INITDB_ARGS
POSTGRES_USER=${POSTGRES_USER:-postgres}
POSTGRES_DB=${POSTGRES_DB:-$POSTGRES_USER}
POSTGRES_HOST_AUTH_METHOD=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
clear_unfinished
[ -e "$PGDATA/PG_VERSION" ] || set_up
# A function in the server could read it from there.
unset POSTGRES_PASSWORD
exec "$@"
