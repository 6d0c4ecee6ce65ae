"""KFP pipelines: from source or IR to a graph, typed inputs and the executor's contract."""
