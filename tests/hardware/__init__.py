"""The hardware tier: the real libibverbs and the kernel's Soft-RoCE driver, in a guest without RDMA
hardware.
"""
