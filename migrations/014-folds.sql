-- Cross-validated runs: a config is there once for each fold that it leaves out.
ALTER TABLE cerebro._config ADD COLUMN config_key integer, ADD COLUMN fold integer;
COMMENT ON COLUMN cerebro._config.config_key IS 'Of a cross-validated run, the mst_key of the config in the model selection table; mst_key numbers the config with its fold';
COMMENT ON COLUMN cerebro._config.fold IS 'The fold that the config is not trained on; NULL where it is trained on all rows';
