SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cerebro CASCADE;
DROP SCHEMA IF EXISTS demo CASCADE;
CREATE SCHEMA demo;
CREATE TABLE demo.digits (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    label integer NOT NULL,
    pixels real[] NOT NULL
);
