-- A value as the text that its type writes, the same in every session: the server's own concat of one value, with the
-- settings of `_json`.
CREATE OR REPLACE FUNCTION cerebro._text(anyelement) RETURNS text
LANGUAGE internal STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET TimeZone = 'UTC'
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET bytea_output = 'hex' AS 'text_concat';
COMMENT ON FUNCTION cerebro._text(anyelement) IS
'Internal: a value as text, whatever the settings of the session.';
