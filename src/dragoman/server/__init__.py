"""The HTTP service: a guard and a front without torch, and a worker process that decodes."""
