"""The page: runs in a browser. It shows what journals have and what the views compute, decides nothing and writes nothing."""
