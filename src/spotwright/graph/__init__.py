"""The task graph: tasks with needs, policy, inputs and dependencies, independent of their source.

The engine plans and runs this graph. :mod:`spotwright.pipelines` builds it from a compiled KFP pipeline,
:mod:`spotwright.manifests` from pod templates. This package depends on neither.
"""
