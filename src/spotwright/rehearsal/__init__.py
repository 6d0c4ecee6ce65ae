"""Rehearsal: a step of a pipeline, or any command, is run undisturbed and then interrupted where it hurts, before it happens.

It answers three questions with evidence: does the step survive an interruption, does it go on from where it was, and what
does one interruption cost? Everything runs through the engine, the world and the shims of a local run; what is new is who
takes the nodes (:mod:`.killer`) and the look at what an attempt does to its files, system call by system call
(:mod:`.tracer`), so that a kill lands inside a save or between two outputs and not somewhere near it.
"""
