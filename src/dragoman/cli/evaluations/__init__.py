"""What `dragoman evaluate` prints: a file for each kind of task."""
