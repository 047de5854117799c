"""The rules of what a run trains, with nothing on how the run is carried out: pure Python."""
