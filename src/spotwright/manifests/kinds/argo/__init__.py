"""Argo Workflows: templates, retries, ``podSpecPatch``, and references between workflows and templates."""
