"""Rehearse a pipeline's task, or any command: run it undisturbed, then interrupt it at its most vulnerable moments.

A rehearsal answers three questions with evidence: does the step survive an interruption, does it resume, and what does one
interruption cost? Every trial is an ordinary local run with the same engine, backend and shims. Only two parts are new: the
fault injector decides when a node is reclaimed (:mod:`.fault_injector`), and the tracer follows the attempt's file operations,
system call by system call (:mod:`.syscall_tracer`), so that a kill lands exactly inside a save or between two outputs.
"""
