"""The grammar of MADlib: parameter strings, grids, and the names that may stand in them."""
