"""Checks program texts by cotune's command-line tool, where COTUNE_CLI names it."""

from __future__ import annotations

import os
import subprocess
import unittest


def check_by_tool(test: unittest.TestCase, text: str) -> None:
    """Fails the test if the tool refuses the text. Does nothing without COTUNE_CLI."""
    tool = os.environ.get("COTUNE_CLI")
    if not tool:
        return
    command = [tool, "program", "check", "/dev/stdin"]
    run = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    test.assertEqual(run.returncode, 0, text + run.stderr)
