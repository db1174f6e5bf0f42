#!/bin/bash
# In the guest. All nodes of a plan in one guest, M nodes x N rails: rail r is a bridge, node k's NIC on it is n<k>r<r> with
# the address 10.10.<r>.<k+1> and the RDMA device rx<k>_<r>. Policy routing sends packets between addresses of this same
# machine through the NICs and the bridge, so that a NIC that is down really cuts its node off that rail.
#   rails.sh make M N FIRST (rails FIRST, FIRST + 1, ...)    rails.sh mend K R (after its NIC was cut)
#   rails.sh nics N BYTE (two guests: one NIC a rail, the addresses end in BYTE)
set -eo pipefail
mtu=9000
routes() { # K R M: as commands for ip, the ways from node K to the others on rail R
  local k=$1 r=$2 f
  for ((f = 0; f < $3; f++)); do
    if [ "$f" = "$k" ]; then continue; fi
    echo "route replace 10.10.$r.$((f + 1)) dev n${k}r$r src 10.10.$r.$((k + 1)) table $((1000 + 100 * r + k))"
    echo "neigh replace 10.10.$r.$((f + 1)) lladdr 02:00:00:00:0$f:0$r dev n${k}r$r nud permanent"
  done
}
rails() { # NODES FIRST LAST: as commands for ip, the bridges and NICs of rails FIRST to LAST - 1
  local r k
  for ((r = $2; r < $3; r++)); do
    echo "link add br$r type bridge stp_state 0 forward_delay 0"; echo "link set br$r mtu $mtu up"
    for ((k = 0; k < $1; k++)); do
      echo "link add n${k}r$r address 02:00:00:00:0$k:0$r mtu $mtu type veth peer name p${k}r$r mtu $mtu"
      echo "link set p${k}r$r master br$r up"; echo "link set n${k}r$r up"
      echo "addr add 10.10.$r.$((k + 1))/24 dev n${k}r$r noprefixroute"
      echo "rule add pref 10 iif n${k}r$r lookup local"
      echo "rule add pref 20 from 10.10.$r.$((k + 1)) to 10.10.$r.0/24 lookup $((1000 + 100 * r + k))"
    done
    for ((k = 0; k < $1; k++)); do routes $k $r $1; done
  done
}
case $1 in
make) # one ip for all: starting a program is slow under emulation
  nodes=$2; first=$4; last=$((first + $3))
  for f in all default; do echo 0 > /proc/sys/net/ipv4/conf/$f/rp_filter; echo 1 > /proc/sys/net/ipv4/conf/$f/accept_local; done
  if ip rule show | grep -q '^0:'; then ip rule add pref 100 lookup local; ip rule del pref 0; fi
  rails $nodes $first $last | ip -batch -
  for ((r = first; r < last; r++)); do
    echo "$nodes" > /run/railopt-nodes$r
    for ((k = 0; k < nodes; k++)); do
      # one CPU's backlog for all packets of a NIC: else two vCPUs reorder them and rxe refuses what it gets
      for e in n p; do echo 1 > /sys/class/net/$e${k}r$r/queues/rx-0/rps_cpus; done
      rdma link add rx${k}_$r type rxe netdev n${k}r$r
    done
  done ;;
mend)
  ip link set n${2}r$3 up; tc qdisc del dev n${2}r$3 root 2>/dev/null || true
  routes $2 $3 "$(cat /run/railopt-nodes$3)" | ip -batch - ;;
nics)
  for ((r = 0; r < $2; r++)); do
    ip link set eth$r mtu $mtu up; ip addr add 10.20.$r.$3/24 dev eth$r; rdma link add rxe$r type rxe netdev eth$r
  done ;;
*) echo "usage: see the head of this file" >&2; exit 2 ;;
esac
