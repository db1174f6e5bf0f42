"""The equitable plan: both sides balanced at once, by colouring the chunks' bipartite graph with
the rails.

Nodes as senders on the left, as receivers on the right, one edge a chunk.  Each node's chunks,
largest first, are cut into blocks of N; a proper N-colouring of the graph whose vertices are the
blocks puts one chunk of every block on each rail.  Hence (theorem T8 and its corollary for
any sizes):

    equal chunks   every NIC carries floor or ceil of its node's chunks / N: the ceiling bound, the
                   exact optimum
    any sizes      max - min over the rails of any node, either side, is at most the largest chunk,
                   whatever M

Of each (sender, receiver), N chunks of the largest size at a time go one to each rail without
colouring, so that the cost for equal chunks is O(M^2 N) after one pass over them.
de Werra, "Equitable colorations of graphs" (1971); the blocks of sorted chunks carry it to unequal
sizes.
"""

from __future__ import annotations

import numpy as np

from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.common import Columns, check_alive, make_plan, rail_turns
from railopt.policies.lpt import lpt_global

__all__ = ["equitable"]


def equitable(fabric: Fabric, chunks: Chunks) -> Plan:
    """Colour chunks with rails.  Needs each rail to have one rate at all nodes, in small whole
    proportions (a rail of double rate is two colours); on any other fabric it is `lpt-global`,
    which knows every NIC's rate.
    """
    from railopt.policies import equitable_rails

    check_alive(fabric, chunks)
    colours = rail_turns(fabric)
    if colours is None:
        return make_plan(fabric, chunks, lpt_global(fabric, chunks).rail.copy(), "equitable")
    rail = np.empty(len(chunks), np.int16)
    if len(chunks):
        equitable_rails.assign(Columns.of(chunks), fabric.nodes, colours, rail)
    return make_plan(fabric, chunks, rail, "equitable")
