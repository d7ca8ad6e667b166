"""`ipex.explain`: reports how a model is compiled, and how close every step is to the machine's limits."""

from .report import Explanation as Explanation
from .report import explain as explain
