"""Many instances: a grid in TOML, run here or on a Dask cluster, into append-only results that
survive whatever happens.

spec       TOML -> instances with content keys
instance   one instance -> one row
box        the process that runs instances for a worker, with limits on memory and time
results    JSON Lines, one file per writer; reading, filtering, merging, exporting
client     which instances are still to do, and who does them
"""
