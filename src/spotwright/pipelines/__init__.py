"""KFP pipelines: loading and compiling them, their graph, typed inputs, and the contract of the SDK's executor."""
