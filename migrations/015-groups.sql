-- Runs of groups: a config is there once for each group, whose rows alone it is trained on.
ALTER TABLE cerebro._config ADD COLUMN group_id integer;
COMMENT ON COLUMN cerebro._config.config_key IS 'Of a cross-validated run or one of groups, the mst_key of the config in the model selection table; mst_key numbers the config with its fold or group';
COMMENT ON COLUMN cerebro._config.group_id IS 'The group whose rows alone the config is trained on; NULL where it is trained on all rows';

ALTER TABLE cerebro._config ADD COLUMN warm_key integer, ADD COLUMN class_counts text;
COMMENT ON COLUMN cerebro._config.warm_key IS 'The number that the config had in the run that it goes on from, where that is another one';
COMMENT ON COLUMN cerebro._config.class_counts IS 'JSON: of a group whose classes are balanced, how many rows each class has, by output';

ALTER TABLE cerebro._request ADD COLUMN config_key integer, ADD COLUMN group_id integer;
COMMENT ON COLUMN cerebro._request.config_key IS 'Of a new config on a group, which config it is';
COMMENT ON COLUMN cerebro._request.group_id IS 'The group on which a new config is to be trained';

CREATE TABLE cerebro._group (
    run_id bigint NOT NULL,
    group_id integer NOT NULL,
    key text NOT NULL,
    "rows" bigint NOT NULL,
    segments integer[] NOT NULL,
    classes integer,
    PRIMARY KEY (run_id, group_id)
);
COMMENT ON TABLE cerebro._group IS 'The groups of a run as they were when it began, each with the values of its columns and where its rows lie.';
COMMENT ON COLUMN cerebro._group.key IS 'JSON: the values of the columns that make groups';

ALTER TABLE cerebro._group ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._group USING (
    EXISTS (SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _group.run_id));

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        EXECUTE 'ALTER TABLE cerebro._group SET DISTRIBUTED BY (run_id)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._group', '');
