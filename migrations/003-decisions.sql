-- What is decided while a run goes on: by a search procedure, by a budget, by a person in another session.

ALTER TABLE cerebro._run DROP CONSTRAINT _run_kind_check;
ALTER TABLE cerebro._run ADD CONSTRAINT _run_kind_check
    CHECK (kind IN ('many', 'single', 'automl', 'evaluation'));
ALTER TABLE cerebro._run ADD COLUMN search text;
ALTER TABLE cerebro._run ADD COLUMN limits text NOT NULL DEFAULT '{}';

ALTER TABLE cerebro._config ADD COLUMN source_key integer;
ALTER TABLE cerebro._config ADD COLUMN source_step integer;
COMMENT ON TABLE cerebro._config IS 'The configs of a run; warm_run_id and warm_step name the state that a warm start goes on from, epochs_before how many epochs it has behind it; source_key and source_step the config, and if its state was taken the step, that a clone was made from.';

CREATE SEQUENCE cerebro._request_id_seq;

CREATE TABLE cerebro._request (
    request_id bigint PRIMARY KEY DEFAULT nextval('cerebro._request_id_seq'),
    run_id bigint NOT NULL,
    role regrole NOT NULL,
    decision text NOT NULL CHECK (decision IN (
        'start', 'clone', 'stop', 'resume', 'delete', 'set_epochs', 'pause')),
    mst_key integer,
    epochs integer,
    source_key integer,
    with_state boolean,
    model_id integer,
    compile_params text,
    fit_params text,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON cerebro._request (run_id);
COMMENT ON TABLE cerebro._request IS 'What a person has asked of a run that goes on; the session behind the run answers each with one row of _decision.';

CREATE TABLE cerebro._decision (
    run_id bigint NOT NULL,
    number integer NOT NULL,
    decision text NOT NULL CHECK (decision IN (
        'measured', 'start', 'clone', 'go_on', 'stop', 'resume', 'delete', 'set_epochs', 'pause', 'refused')),
    mst_key integer,
    step integer,
    epochs integer,
    value double precision,
    reason text,
    role regrole,
    request_id bigint,
    cause integer,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, number)
);
CREATE INDEX ON cerebro._decision (request_id);
COMMENT ON TABLE cerebro._decision IS 'Everything that was decided in a run, and each measurement that its search procedure was told, in this order.';

ALTER TABLE cerebro._request ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._request USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _request.run_id));
ALTER TABLE cerebro._decision ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._decision USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _decision.run_id));

SELECT pg_catalog.pg_extension_config_dump('cerebro._request', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._request_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._decision', '');
