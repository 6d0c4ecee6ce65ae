"""An artifact class of a third-party package, not of the SDK."""

from kfp import dsl


class Prompt(dsl.Artifact):
    schema_title = "google.Prompt"
    schema_version = "0.0.1"
