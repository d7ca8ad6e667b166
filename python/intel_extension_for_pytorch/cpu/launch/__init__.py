"""`ipexrun`: runs programs with their threads, memory allocator and OpenMP runtime set up, in one or more instances, or
as the ranks of a distributed program. Also `python -m intel_extension_for_pytorch.cpu.launch`."""

from .command_line import main
from .cpu_info import CPUPoolList
from .distributed import DistributedTrainingLauncher
from .launcher_base import Launcher
from .multi_instances import MultiInstancesLauncher

__all__ = ["CPUPoolList", "DistributedTrainingLauncher", "Launcher", "MultiInstancesLauncher", "main"]
