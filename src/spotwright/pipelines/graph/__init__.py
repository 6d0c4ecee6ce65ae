"""Build the task graph (:mod:`spotwright.graph`) from a compiled pipeline."""
