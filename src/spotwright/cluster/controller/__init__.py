"""The controller: the one process in a cluster that answers admission reviews, watches attempts and keeps their journals.

It stands above admission and watching and wires them to the API server, to the ConfigMaps and to the state folder. Every replica
answers reviews; the one that holds the Lease watches and writes.
"""
