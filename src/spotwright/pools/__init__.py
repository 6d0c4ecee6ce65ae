"""Commands and manifests that create the pools of ``spotwright.yaml``, and checks of what keeps work off them.

Each provider's module holds the commands and manifests of its tools. All of them are text for people to read and run: this
package neither runs commands nor asks a cluster.
"""
