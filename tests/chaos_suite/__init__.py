"""Random faults, one after another, on a pipeline of real processes; after each round source and destinations agree.

`make chaos MINUTES=3` prints its seed, and `SEED=` chooses the same faults and the same writes again. The moments at
which they meet are the machine's.
"""
