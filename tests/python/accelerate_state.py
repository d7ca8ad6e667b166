"""The state of Hugging Face Accelerate in a process, for tests of the adapter."""

import os

from accelerate.state import AcceleratorState
from intel_extension_for_pytorch.integrations import accelerate as adapter

OURS = ("ACCELERATE_", "IPEX_ENABLED", "CCL_", "KMP_", "PMI_", "RANK", "WORLD_SIZE", "LOCAL_RANK")


def clean_state(monkeypatch):
    """For a fixture: no state of accelerate or of the adapter from another test, and none left."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    adapter.disable()
    AcceleratorState._reset_state(reset_partial_state=True)
