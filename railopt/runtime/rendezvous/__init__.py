"""Ranks find each other, agree, and exchange messages.

launch.py      who am I: rank and size from mpirun, srun, torchrun or a host list
address.py     which addresses are this machine's, and where rank 0 listens
wire.py        frames of JSON, bounded in size and time
handshake.py   both sides prove that they know the shared secret; the keys of a session
channel.py     authenticated frames after the handshake
hub.py         rank 0's server: it relays, and announces who was lost
group.py       a rank's view of the others: gather, send, news
join.py        into a group through TCP; mpi.py through MPI; meet.py by whichever way fits
"""
