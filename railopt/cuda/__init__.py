"""Planning on the GPU (extra `cuda`): from byte counts on the device to rails on the device, one
kernel, no host sync.  The same plans, bit by bit, as the policies on the host.
"""

from railopt.cuda.planner import DevicePlan, Planner

__all__ = ["DevicePlan", "Planner"]
