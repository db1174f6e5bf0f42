#!/bin/bash
# prepare.sh DIR: everything the guest needs, idempotent: Debian packages (as root with apt; else it names those that are
# missing and fails), a Debian kernel with rdma_rxe that is unpacked and never installed, and an initrd with its modules.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mkdir -p "${1:?usage: prepare.sh DIR}" && cd "$1" && pwd)
case $(uname -m) in
  x86_64) qemu=qemu-system-x86; kernel=linux-image-amd64 ;;
  aarch64) qemu=qemu-system-arm; kernel=linux-image-arm64 ;;
  *) echo "test-rdma: no guest for $(uname -m): only x86_64 and aarch64" >&2; exit 1 ;;
esac
packages=("$qemu" libibverbs1 libibverbs-dev ibverbs-providers ibverbs-utils perftest iproute2 kmod busybox-static cpio gcc libc6-dev)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "test-rdma needs these Debian packages: ${missing[*]}" >&2
    echo "install them as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ! -d "$dir/kernel/lib/modules" ]; then
  real=$(apt-cache depends "$kernel" | awk '/Depends: linux-image/ {print $2; exit}')
  if [ -z "$real" ]; then apt-get update -qq; real=$(apt-cache depends "$kernel" | awk '/Depends: linux-image/ {print $2; exit}'); fi
  [ -n "$real" ] || { echo "test-rdma: apt knows no package $kernel" >&2; exit 1; }
  rm -rf "$dir/deb" "$dir/kernel.new"; mkdir "$dir/deb"
  (cd "$dir/deb" && apt-get download -qq "$real")
  dpkg -x "$dir"/deb/*.deb "$dir/kernel.new"
  mv "$dir/kernel.new" "$dir/kernel"; rm -rf "$dir/deb"
fi
if [ ! -s "$dir/initrd.gz" ] || [ "$here/initrd.sh" -nt "$dir/initrd.gz" ] || [ "$here/init" -nt "$dir/initrd.gz" ]; then
  "$here/initrd.sh" "$dir"
fi
