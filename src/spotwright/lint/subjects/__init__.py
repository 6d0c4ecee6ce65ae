"""What rules look at: objects, pod templates, compiled pipelines and Python files, each with the lines of its parts."""
