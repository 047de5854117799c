-- Greenplum alone has segments with processes of their own: store/places.py sends these calls there.
CREATE OR REPLACE FUNCTION cerebro._on_segment(command text, parcel bytea) RETURNS bytea
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].on_segment(command, parcel)
$$;
COMMENT ON FUNCTION cerebro._on_segment(text, bytea) IS
'Internal: what a segment''s own process does, training for example. Granted to nobody: sessions call it as the owner.';

CREATE OR REPLACE FUNCTION cerebro._take_buffer(ticket text, buffer_id integer, shapes text, fields bytea[]) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].take_buffer(ticket, buffer_id, shapes, fields)
$$;
COMMENT ON FUNCTION cerebro._take_buffer(text, integer, text, bytea[]) IS
'Internal: hands a buffer to the process that has it on its segment. The caller''s own scan calls it; without the ticket of a load that is under way it refuses.';
