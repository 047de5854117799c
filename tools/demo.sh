#!/usr/bin/env bash
# From rows to a leaderboard of sixteen nets, in a schema `demo` that is made anew each time.
set -euo pipefail
source "$(dirname "$0")/common.sh"

psql=("$(dirname "$(own_pg_config)")/psql" --no-psqlrc --quiet --set ON_ERROR_STOP=1)
# The container image has them as a file.
digits() { cat "$root/digits" 2>/dev/null || "$root/.local/venv/bin/python" "$root/tools/demo_digits.py"; }
# From standard input, since psql would put a file's name before every progress line.
run() { PSQL_PAGER='' stdbuf -oL "${psql[@]}" --set go_on="${GO_ON:-make psql}" <"$root/tools/$1"; }

run demo_begin.sql
digits | "${psql[@]}" -c 'COPY demo.digits (label, pixels) FROM STDIN'
run demo.sql

verdict=$("${psql[@]}" -Atc "SELECT CASE WHEN accuracy BETWEEN 0.95 AND 1 THEN 'good' ELSE accuracy::text END FROM demo.best")
[ "$verdict" = good ] || fail "the best validation accuracy is ${verdict:-missing}, less than 0.95"
