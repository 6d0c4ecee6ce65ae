"""The market of spot capacity: seeded models and recorded traces that say when a node goes. Pure."""
