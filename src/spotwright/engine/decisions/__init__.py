"""The decisions of a run as pure functions, the snapshots of the world that they use, and their replay."""
