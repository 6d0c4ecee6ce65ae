"""An artifact class that is not the SDK's, as a package of somebody else brings it."""

from kfp import dsl


class Prompt(dsl.Artifact):
    schema_title = "google.Prompt"
    schema_version = "0.0.1"
