"""Admission: objects are placed when they are created, and pods get the rung of their attempt. Nothing is denied or gated."""
