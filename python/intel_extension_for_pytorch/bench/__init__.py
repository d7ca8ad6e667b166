"""The kernel benchmark, `ipexc bench-kernels`: eager, Inductor and ipex on one kernel at a time, interleaved.

cases.py says what is run, measure.py runs it, report.py and page.py show it.
"""
