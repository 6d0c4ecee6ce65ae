"""Runs whose attempts an orchestrator makes: their events, and the steps of the fold for them."""
