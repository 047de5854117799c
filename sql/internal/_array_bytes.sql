-- The identity on the bytes of a datum, which array_send would convert element by element: the server's own function for
-- types that are binary compatible, declared for arrays. The reader (packing/rows/arrays.py) checks every header.
CREATE OR REPLACE FUNCTION cerebro._array_bytes(anyarray) RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS 'xmltotext';
COMMENT ON FUNCTION cerebro._array_bytes(anyarray) IS
'Internal: an array as the bytes that the server holds, so that the preprocessors read rows without converting each element.';
