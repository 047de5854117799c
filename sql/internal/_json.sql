-- A value or a row as JSON, the same in every session: the server's own function, with each setting fixed that an output
-- function reads. `_text` fixes the same settings (tests/db/test_session_settings.py). The settings hold for this conversion
-- alone: what a caller's view or query computes still follows the caller's. To fix them costs more than the conversion,
-- which the planner must know to share the rows of a large table among workers.
CREATE OR REPLACE FUNCTION cerebro._json(anyelement) RETURNS json
LANGUAGE internal STABLE STRICT PARALLEL SAFE COST 100
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET TimeZone = 'UTC'
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET bytea_output = 'hex' AS 'to_json';
COMMENT ON FUNCTION cerebro._json(anyelement) IS
'Internal: a value or a row as JSON, whatever the settings of the session.';
