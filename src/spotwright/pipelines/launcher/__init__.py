"""The contract with KFP's launcher and executor: the input and command of an attempt, and the outputs it must leave."""
