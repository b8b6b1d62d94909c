"""The live page of a training, which only reads files of the run directory."""
