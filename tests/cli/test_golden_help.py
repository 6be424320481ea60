"""`--help` of every command, as a file that is read when it changes: it is made of fields, so that a change far from here may show.

ARLAB_WRITE_GOLDEN=1 writes help.txt anew.
"""

import os
from pathlib import Path

from program import ok

GOLDEN = Path(__file__).with_name("help.txt")
COMMANDS = [
    "", "list", "encode", "decode", "reduce", "schedule", "simulate", "topology", "topology show", "topology compare",
    "topology import", "select", "vectors", "check-codec", "conform", "judge", "bench", "study", "sweep", "model",
    "model perplexity", "model layers", "model assign", "model time", "model validate", "report", "new", "new codec", "doctor",
    "completion", "validate", "calibrate",
]  # fmt: skip


def test_help_is_what_it_was(tmp_path):
    # Versions of CLI11 end it with one empty line or with none.
    text = "\n\n".join(f"$ arlab {command} --help\n{ok(f'{command} --help', tmp_path).rstrip()}" for command in COMMANDS) + "\n"
    if os.environ.get("ARLAB_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
