-- Owners of registered models have a table of their own, of which a dump leaves out roles that are gone: restored by
-- its number alone, a model would be that of whoever has the number on another server.
CREATE TABLE cerebro._model_owner (
    name text PRIMARY KEY,
    role regrole NOT NULL
);
COMMENT ON TABLE cerebro._model_owner IS 'Who owns a registered model; one without an owner is superusers''.';

INSERT INTO cerebro._model_owner SELECT name, owner FROM cerebro._model;
ALTER TABLE cerebro._model DROP COLUMN owner;

-- Nobody is granted this table; with no policy, whoever should be reads nothing.
ALTER TABLE cerebro._model_owner ENABLE ROW LEVEL SECURITY;

SELECT pg_catalog.pg_extension_config_dump(
    'cerebro._model_owner', 'WHERE role::oid IN (SELECT oid FROM pg_catalog.pg_roles)'
);
