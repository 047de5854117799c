"""The rules of what a run is asked to do, without a word on how it is done: pure Python."""
