-- Greenplum alone has commands that are carried out statement by statement: cluster/procedure.py says why. None of this has a search_path
-- of its own: every segment would be told of it, twice for each call, and a procedure that ends transactions may have none. It is called in
-- segment sessions, which have a safe one from the beginning.
CREATE OR REPLACE FUNCTION cerebro._begin_command(command text, request text) RETURNS text []
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].begin_command(command, request)
$$;
COMMENT ON FUNCTION cerebro._begin_command(text, text) IS
'Internal: returns the first step of a command: its kind, its input, and statements.';

CREATE OR REPLACE FUNCTION cerebro._go_on(found text) RETURNS text []
LANGUAGE plpython3u AS $$
import sys
return sys.modules["cerebro_plpy.session"].go_on(found)
$$;
COMMENT ON FUNCTION cerebro._go_on(text) IS
'Internal: returns the next step of the command that is under way.';

CREATE OR REPLACE FUNCTION cerebro._show(name text) RETURNS boolean
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].show(name)
$$;
COMMENT ON FUNCTION cerebro._show(text) IS
'Internal: shows other sessions what this one is working on, when its command goes directly to a segment''s process.';

CREATE OR REPLACE PROCEDURE cerebro._command(command text, request text, INOUT answer text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    task text[] := cerebro._begin_command(command, request);
    found text;
    looks text[];
    look text;
BEGIN
    LOOP
        IF task[1] OPERATOR(pg_catalog.=) 'find' THEN
            EXECUTE task[3] INTO found USING task[2];
        ELSIF task[1] OPERATOR(pg_catalog.=) 'write' THEN
            EXECUTE task[3] USING task[2];
        ELSIF task[1] OPERATOR(pg_catalog.=) 'commit' THEN
            COMMIT;
        ELSIF task[1] OPERATOR(pg_catalog.=) 'look' THEN
            -- As the caller, who may do nothing with the command itself; and in a transaction of which nothing stays that the
            -- caller's own code may have done.
            looks := '{}';
            EXECUTE task[3];
            FOREACH look IN ARRAY task[5:] LOOP
                EXECUTE task[4] INTO found USING look;
                looks := pg_catalog.array_append(looks, found);
            END LOOP;
            ROLLBACK;
            found := pg_catalog.array_to_json(looks);
        ELSE
            answer := task[2];
            RETURN;
        END IF;
        task := cerebro._go_on(found);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE cerebro._command(text, text, text) IS
'Internal: what a segment session does about a config on Greenplum; request and answer are JSON. Granted to nobody: segment sessions run as the owner.';
