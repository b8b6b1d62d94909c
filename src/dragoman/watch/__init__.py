"""A live page of a training: reads the files of a run directory, and nothing else."""
