#!/usr/bin/env bash
# From rows to a leaderboard of sixteen nets, in a schema `demo` that is made anew each time.
set -euo pipefail
source "$(dirname "$0")/common.sh"

psql=("$(dirname "$(find_pg_config)")/psql" --no-psqlrc --quiet --set ON_ERROR_STOP=1)
digits() { "$root/.local/venv/bin/python" "$root/tools/demo_digits.py"; }

# From standard input, since psql would put a file's name before every progress line.
say() { PAGER= stdbuf -oL "${psql[@]}" <"$root/tools/$1"; }
ask() { "${psql[@]}" -Atc "$1"; }

say demo_begin.sql
digits | "${psql[@]}" -c 'COPY demo.digits (label, pixels) FROM STDIN'
say demo.sql

best=$(ask "SELECT max(value) FROM cerebro.leaderboard WHERE run_id = (SELECT run_id FROM demo.models_summary)")
ask "SELECT $best >= 0.95" | grep -q t || fail "the best validation accuracy is $best, less than 0.95"

key=$(ask "SELECT mst_key FROM cerebro.leaderboard WHERE run_id = (SELECT run_id FROM demo.models_summary) ORDER BY rank, mst_key LIMIT 1")
