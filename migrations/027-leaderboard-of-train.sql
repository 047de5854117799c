-- The leaderboard of cerebro.train gets the metrics of quantities as columns.
DROP FUNCTION IF EXISTS cerebro.train(varchar, text, text, interval, jsonb);
DROP FUNCTION IF EXISTS cerebro.finish_train(text);
