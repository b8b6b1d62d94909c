"""Signals that come where Python cannot raise an exception."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time, weakref
import dragoman.cli.main
from dragoman.__main__ import main

class Thing:
    pass

def callback(_reference):
    os.kill(os.getpid(), signal.{name})
    sum(range(1000))  # the exception is raised here, and ignored

def work():
    thing = Thing()
    reference = weakref.ref(thing, callback)
    del thing
    time.sleep(600)

dragoman.cli.main.main = work
main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_in_a_callback_is_not_lost(name, code):
    program = PROGRAM.format(name=name)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert result.returncode in (code, -getattr(signal, name)), result.stderr
    assert result.stderr in ("", "dragoman: interrupted.\n")
