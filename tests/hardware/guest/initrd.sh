#!/bin/bash
# initrd.sh DIR: DIR/initrd.gz from busybox and the modules of the kernel under DIR/kernel, in the order they load.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); dir=$1
version=$(ls "$dir/kernel/lib/modules")
depmod -b "$dir/kernel" "$version"
root=$(mktemp -d); trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,proc,sys,dev,lower,rw,root,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/init" "$root/init"; chmod +x "$root/init"
# crc32_generic must be there before the first rdma link: rxe asks for it by name
wanted="virtio_pci virtio_mmio 9pnet_virtio 9p overlay virtio_net virtio-rng veth bridge sch_netem crc32_generic rdma_rxe ib_uverbs"
for module in $wanted; do
  modprobe -d "$dir/kernel" -S "$version" --show-depends "$module" | awk '$1 == "insmod" {print $2}' | while read -r file; do
    name=$(basename "$file")
    [ ! -e "$root/modules/$name" ] || continue
    cp "$file" "$root/modules/$name"
    echo "$name" >> "$root/modules/order"
  done
done
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$dir/initrd.gz.new"
mv "$dir/initrd.gz.new" "$dir/initrd.gz"
