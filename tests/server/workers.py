"""A worker that is driven by hand: without threads, processes and a clock."""

from dragoman.server.limits import Limits
from dragoman.server.scheduler import BatchScheduler
from dragoman.server.worker import DecodingWorker


class Channel:
    """Notes what the worker sends, and calls `on_message` with each message."""

    def __init__(self, on_message=lambda _message: None):
        self.on_message, self.results, self.problems, self.parts = on_message, [], [], 0

    def send(self, messages):
        for message in messages:
            self.parts += "part" in message
            self.results += [message["result"]] if "result" in message else []
            self.problems += [message["problem"]] if "problem" in message else []
            self.on_message(message)


def worker_of(registry, limits=None):
    channel = Channel()
    return DecodingWorker(channel, registry, BatchScheduler(threads=1), limits or Limits()), channel


def work_through(worker, on_batch=lambda _batch: None):
    """Do everything that is queued; return the number of batches."""
    count = 0
    while worker.scheduler.jobs:
        worker.scheduler.recent_load = 0
        batch = worker.scheduler.next_batch()
        worker.decode_batch(batch)
        on_batch(batch)
        count += 1
    return count


def is_idle(scheduler):
    return not (
        any(scheduler.queued_units.values()) or any(scheduler.busy_threads.values()) or scheduler.jobs
        or any(client.jobs or client.threads for client in scheduler.clients.values())
    )  # fmt: skip


def slices_of(worker, monkeypatch):
    """Interrupt brief work at every look; return a list that gets the function of each slice."""
    monkeypatch.setattr("dragoman.server.worker._BRIEF_SECONDS", 0.0)
    charge, slices = BatchScheduler.charge, []

    def count(self, batch, seconds):
        slices.append(batch.units[0][0].payload[0].run)
        charge(self, batch, seconds)

    monkeypatch.setattr(BatchScheduler, "charge", count)
    return slices
