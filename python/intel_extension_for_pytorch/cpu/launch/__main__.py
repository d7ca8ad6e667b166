"""`python -m intel_extension_for_pytorch.cpu.launch options program arguments`."""

import sys

from .command_line import launch

sys.exit(launch(sys.argv[1:], "python -m intel_extension_for_pytorch.cpu.launch"))
