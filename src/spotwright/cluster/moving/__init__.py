"""The mover: takes back pods that wait in vain for a node, and deletes the pods of machines that are gone."""
