"""The kernel benchmark, `ipexc bench-kernels`: times single kernels in eager, Inductor and ipex, interleaved.

cases.py defines the cases, measure.py runs them, report.py and page.py show the results. artifact.py implements
`ipexc bench`, which measures an artifact.
"""
