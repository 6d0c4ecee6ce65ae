"""Commands about money: what runs have cost."""
