"""Rules of forecasts: steps of time, series on a grid, windows, baselines, errors and intervals; pure."""
