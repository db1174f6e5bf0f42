"""`python -m tests.bench torch` plays a rank without the others, through names of the package."""

from railopt import Fabric
from tests.bench import bench_torch


def test_a_rank_that_plays_alone_has_the_way_of_the_whole_matrix():
    bench_torch.alone(Fabric.uniform(2, 4), "lpt")()  # asserts that the way is the same
    bench_torch.copies()()
