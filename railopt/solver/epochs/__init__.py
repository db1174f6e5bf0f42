"""The time-expanded program: the best schedule of a small all-to-all, chunk by chunk.

exchange    what is to be sent and what it takes; a timetable, checked and timed; bounds
program     the same as rows of an integer program
best        the program put to a back-end, for ever more periods
"""
