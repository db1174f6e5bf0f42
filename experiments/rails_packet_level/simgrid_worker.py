"""Flows between NICs in SimGrid: reads one JSON object from stdin, writes one to stdout.

    in   {"nics": n, "rate": bytes per second, "latency_s": of a link, "runs": [[[from, to, bytes],
         ...], ...]}
    out  {"version": "3.32", "seconds": [completion of each run]}

Every NIC has a link up to its switch and one down from it; the switches are non-blocking, unless
"links" (the rate of each) and "routes" ([from, to, [link, ...]], ...) say otherwise.  It needs
SimGrid's Python module and nothing of railopt, so that any interpreter that has the module can run
it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import simgrid  # type: ignore[import-not-found,unused-ignore]

CONFIG = (
    "network/model:CM02",  # links shared max-min fairly
    "network/TCP-gamma:0",  # no limit from a TCP window
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/optim:Full",  # its lazy updates leave rates old: up to 3.6 % off on sparse traffic
    "network/crosstraffic:0",  # what is received does not slow what is sent
    "contexts/factory:thread",
)


def platform(engine: Any, nics: int, rate: float, latency_s: float) -> list[Any]:
    """One host per NIC, on links of its own."""
    zone = simgrid.NetZone.create_star_zone("fabric")
    hosts = []
    for number in range(nics):
        host = zone.create_host(f"nic{number}", 1e9)
        up, down = (
            simgrid.LinkInRoute(
                zone.create_link(f"{way}{number}", rate).set_latency(latency_s).seal()
            )
            for way in ("up", "down")
        )
        zone.add_route(host.netpoint, None, None, None, [up], False)
        zone.add_route(None, host.netpoint, None, None, [down], False)
        hosts.append(host)
    zone.seal()
    return hosts


def routed(asked: dict[str, Any]) -> list[Any]:
    """One host per NIC, and the links of each pair of them that has a route."""
    zone = simgrid.NetZone.create_full_zone("fabric")
    hosts = [zone.create_host(f"nic{number}", 1e9) for number in range(asked["nics"])]
    links = [
        simgrid.LinkInRoute(
            zone.create_link(f"link{number}", float(rate)).set_latency(asked["latency_s"]).seal()
        )
        for number, rate in enumerate(asked["links"])
    ]
    for src, dst, path in asked["routes"]:
        ends = hosts[src].netpoint, hosts[dst].netpoint
        zone.add_route(*ends, None, None, [links[link] for link in path], False)
    zone.seal()
    return hosts


def main() -> None:
    asked = json.load(sys.stdin)
    engine = simgrid.Engine(["worker", *(f"--cfg={option}" for option in CONFIG), "--log=no_loc"])
    if "routes" in asked:
        hosts = routed(asked)
    else:
        hosts = platform(engine, asked["nics"], float(asked["rate"]), float(asked["latency_s"]))
    seconds: list[float] = []

    def every_run() -> None:
        for flows in asked["runs"]:
            begun = simgrid.Engine.clock
            started = [
                simgrid.Comm.sendto_async(hosts[src], hosts[dst], size) for src, dst, size in flows
            ]
            simgrid.Comm.wait_all(started)
            seconds.append(simgrid.Engine.clock - begun)

    simgrid.Actor.create("all", hosts[0], every_run)
    engine.run()
    json.dump({"version": simgrid.simgrid_version, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main()
