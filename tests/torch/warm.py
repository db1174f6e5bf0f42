"""Loaded once by the process that others are forked from: PyTorch, all that a comparison loads with
it, and the kernels of a route.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed
import torch.testing

from railopt import Fabric
from railopt.torch.routes import Router

torch.set_num_threads(1)
torch.testing.assert_close(torch.ones(1), torch.ones(1))
for policy in ("even-excess", "lpt", "spill"):
    Router(Fabric.uniform(2, 2), 0, policy).route(np.ones((4, 4), np.int64))
