CREATE OR REPLACE FUNCTION cerebro.promote(
    name text,
    version integer,
    alias text DEFAULT 'default',
    if_better_on varchar DEFAULT NULL,
    metric text DEFAULT NULL,
    OUT promoted boolean,
    OUT candidate integer,
    OUT previous integer,
    OUT measured text,
    OUT value double precision,
    OUT previous_value double precision,
    OUT gain double precision,
    OUT gain_low double precision,
    OUT gain_high double precision
) RETURNS SETOF record
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "promote", name, version, alias, if_better_on, metric)
$$;
COMMENT ON FUNCTION cerebro.promote(text, integer, text, varchar, text) IS
'Has an alias of a registered model point at a version. With if_better_on, a packed table of rows that neither version was trained on, it does so only if the version has less error there than the one that the alias points at. metric is what counts, as for cerebro.ensemble. Returns whether it was promoted, both versions, what was measured of them, and gain: by how much the candidate has less error, with the interval that holds the true value in 95 of 100 cases. At most 50,000 rows are read.';
