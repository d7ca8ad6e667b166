"""Streams: teams of threads on chosen cores, tasks that run in the background, and modules that split a batch over
several teams. Nothing needs to be preloaded: it works with every OpenMP runtime that PyTorch runs on."""

from .cpupool import CPUPool as CPUPool
from .cpupool import is_runtime_ext_enabled as is_runtime_ext_enabled
from .cpupool import pin as pin
from .multi_stream import MultiStreamModule as MultiStreamModule
from .multi_stream import MultiStreamModuleHint as MultiStreamModuleHint
from .multi_stream import _MultiStreamBenchmarkModule as _MultiStreamBenchmarkModule
from .multi_stream import get_default_num_streams as get_default_num_streams
from .runtime_utils import get_core_list_of_node_id as get_core_list_of_node_id
from .task import Task as Task
