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
'Makes an alias of a registered model point at a version. With if_better_on, a packed table of rows that neither version was trained on, the alias moves only if the version has less error on these rows than the one it points at now. metric says which error, as for cerebro.ensemble. Returns whether the alias moved, both versions, what was measured of them, and gain: how much less error the candidate has, with an interval that contains the true value in 95 of 100 cases. At most 50,000 rows are read.';
