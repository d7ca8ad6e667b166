"""Ahead-of-time compilation: `compile` writes an exported program as an artifact, `load` reads one as a module."""

from .compilation import ISAS as ISAS
from .compilation import Compilation as Compilation
from .compilation import LoadedModel as LoadedModel
from .compilation import Report as Report
from .compilation import compile as compile
from .compilation import describe as describe
from .compilation import load as load
from .compilation import pack as pack
