"""`ipex.explain`: what was compiled, and what every step takes beside the machine's limits."""

from .report import Explanation as Explanation
from .report import explain as explain
