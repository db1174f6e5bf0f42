"""Every micro-batch: which spare slot takes a copy of which expert, and how tokens split over the
copies, so that the largest load of a GPU is least.  Call `railopt.moe.micro.solve.split`.
"""
