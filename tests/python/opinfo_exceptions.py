"""Samples of OpInfo that pass with aot_eager and not with ipex, each with its reason. An entry that passes is stale:
the sweep says so, and the nightly test fails until it is gone.

Keys: op, dtype or "*", form or "*".
"""

EXCEPTIONS = {}


def covering(op, dtype, form):
    """The key of the entry that lists this, or None."""
    keys = [(op, d, f) for d in (dtype, "*") for f in (form, "*")]
    return next((key for key in keys if key in EXCEPTIONS), None)
