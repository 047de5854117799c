-- Greenplum alone has segments with processes of their own: store/cluster/places.py sends these calls there.
CREATE OR REPLACE FUNCTION cerebro._on_segment(command text, message bytea) RETURNS bytea
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].on_segment(command, message)
$$;
COMMENT ON FUNCTION cerebro._on_segment(text, bytea) IS
'Internal: what a segment''s own process does, training for example. Granted to nobody: sessions call it as the owner.';

CREATE OR REPLACE FUNCTION cerebro._work("order" text) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].work(order)
$$;
COMMENT ON FUNCTION cerebro._work(text) IS
'Internal: what a segment''s own process does about a config, a visit for example. Granted to nobody: sessions call it as the owner.';

CREATE OR REPLACE FUNCTION cerebro._take_buffer(ticket text, buffer_id integer, shapes text, fields bytea[]) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].take_buffer(ticket, buffer_id, shapes, fields)
$$;
COMMENT ON FUNCTION cerebro._take_buffer(text, integer, text, bytea[]) IS
'Internal: hands a buffer to the process that has it on its segment. The caller''s own scan calls it; without the ticket of a load that is under way it refuses.';

CREATE OR REPLACE FUNCTION cerebro._take_row(ticket text, fields bytea[]) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].take_row(ticket, fields)
$$;
COMMENT ON FUNCTION cerebro._take_row(text, bytea[]) IS
'Internal: hands a row that is to be packed to the process that has it on its segment. The caller''s own scan calls it; without the ticket of the packing that is under way it refuses.';

CREATE OR REPLACE FUNCTION cerebro._give_pieces(
    ticket text, OUT dist_key integer, OUT buffer_id integer, OUT places bytea, OUT fields bytea[]
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].give_pieces(ticket)
$$;
COMMENT ON FUNCTION cerebro._give_pieces(text) IS
'Internal: what a segment''s process has of each buffer, from the rows that it has taken.';

CREATE OR REPLACE FUNCTION cerebro._join_pieces(widths integer[], places bytea[], fields bytea[]) RETURNS bytea[]
LANGUAGE plpython3u IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].join_pieces(widths, places, fields)
$$;
COMMENT ON FUNCTION cerebro._join_pieces(integer[], bytea[], bytea[]) IS
'Internal: makes one buffer of the pieces that the segments'' processes have given for it.';

CREATE OR REPLACE FUNCTION cerebro._give_predictions(
    ticket text,
    OUT id text,
    OUT class_name text,
    OUT class_value text,
    OUT prob double precision,
    OUT rank integer,
    OUT prediction double precision[]
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].give_predictions(ticket)
$$;
COMMENT ON FUNCTION cerebro._give_predictions(text) IS
'Internal: what a segment''s process has predicted for the rows that it has taken.';
