"""Planning on the GPU (extra `cuda`): from byte counts on the device to rails on the device, one
kernel, no host sync.  The same plans, bit by bit, as the policies on the host.

planner.py   what is planned for whom; checks, tables and buffers
driver.py    NVIDIA's driver and run-time compiler: arrays and kernels
lent.py      counts that another library lends
kernels/     CUDA C++, one file per policy
"""

from railopt.cuda.planner import DevicePlan, GpuPlanner

__all__ = ["DevicePlan", "GpuPlanner"]
