CREATE OR REPLACE FUNCTION cerebro.labels(
    entity varchar,
    target text,
    over interval,
    every interval,
    output_table varchar,
    label text DEFAULT 'label',
    times jsonb DEFAULT NULL,
    foreign_keys text [] DEFAULT NULL,
    starts timestamptz DEFAULT NULL,
    ends timestamptz DEFAULT NULL
) RETURNS text
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "labels", entity, target, over, every, output_table, label, times, foreign_keys, starts, ends)
$$;
COMMENT ON FUNCTION cerebro.labels(
    varchar, text, interval, interval, varchar, text, jsonb, text[], timestamptz, timestamptz
) IS
'Makes labels from the past, for cerebro.relate. target is an aggregate of an entity''s children, perhaps compared with a number: count(orders) = 0, sum(orders.amount), mean(orders.amount) > 10. At each cut-off it looks at the children from the cut-off on, for as long as over says; features see those before it, so that the two never overlap. Cut-offs lie every so far apart, from ends back to starts: by default, the last has the whole of over behind it in the children''s table, and the first has as much before it. The output table has the entity''s key, at (the cut-off) and the label. times names the time of the children, if they have more than one column of dates and times, and that of the entity: then a label is only for entities that were there before the cut-off.';
