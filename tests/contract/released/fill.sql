-- What a database of a released version holds, for test_update.py: run by a superuser, with the extensions of that version
-- and the roles cerebro_old_runner and cerebro_old_reader there. migrations/README.md says when.
SELECT cerebro.grant_usage('cerebro_old_runner');
SELECT cerebro.grant_usage('cerebro_old_reader');
INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('segments', '2'), ('threads', '1');
GRANT CREATE ON DATABASE :DBNAME TO cerebro_old_runner;
SET SESSION AUTHORIZATION cerebro_old_runner;

CREATE SCHEMA lab;
CREATE TABLE lab.rows AS
SELECT g AS id, array[g, g % 3, g % 2, 1]::real[] AS x, g % 2 AS y FROM generate_series(1, 24) AS g;
SELECT cerebro.training_preprocessor_dl('lab.rows', 'lab.packed', 'y', 'x');
SELECT cerebro.load_keras_model('lab.arch', '{"class_name": "Sequential", "config": [{"class_name": "Dense", "config":
 {"units": 4, "activation": "relu", "batch_input_shape": [null, 4]}}, {"class_name": "Dense", "config":
 {"units": 2, "activation": "softmax"}}]}');
SELECT cerebro.load_model_selection_table('lab.arch', 'lab.mst', ARRAY[1],
    ARRAY[$$loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']$$,
          $$loss='categorical_crossentropy',optimizer='SGD(lr=0.01)',metrics=['accuracy']$$],
    ARRAY['batch_size=4,epochs=1']);
SELECT cerebro.madlib_fit_multiple_model('lab.packed', 'lab.m', 'lab.mst', 2, options => '{"seed": 3}');
CREATE TABLE lab.expected AS
SELECT r.id, p.* FROM lab.rows AS r, cerebro.predict('lab.m', 1, r.x) AS p;

-- A run that ends in its second epoch.
CREATE FUNCTION lab.fail() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
IF current_setting('application_name') LIKE 'cerebro visit%epoch=2%' THEN RAISE 'the power is gone'; END IF;
RETURN TRUE; END $$;
ALTER TABLE lab.packed ENABLE ROW LEVEL SECURITY;
ALTER TABLE lab.packed FORCE ROW LEVEL SECURITY;
CREATE POLICY fail ON lab.packed USING (lab.fail());
SELECT cerebro.madlib_fit_multiple_model('lab.packed', 'lab.broken', 'lab.mst', 3, options => '{"seed": 4}');
DROP POLICY fail ON lab.packed;
ALTER TABLE lab.packed NO FORCE ROW LEVEL SECURITY;
ALTER TABLE lab.packed DISABLE ROW LEVEL SECURITY;
DROP FUNCTION lab.fail();
