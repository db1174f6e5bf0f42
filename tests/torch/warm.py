"""Loaded once by the process that others are forked from: PyTorch and the kernels of a route."""

from __future__ import annotations

import os

import numpy as np
import torch
import torch.distributed

from railopt import Fabric
from railopt.policies.planner import NODE_POLICIES
from railopt.torch import ExpertLayer
from railopt.torch.routes import Router

assert ExpertLayer  # and all that it imports

os.environ["RAILOPT_COMPILE"] = "always"  # here, once, and not in each rank while others wait
torch.set_num_threads(1)
for policy in (*NODE_POLICIES, "spill"):
    Router(Fabric.uniform(2, 2), 0, policy).route(np.ones((4, 4), np.int64))
