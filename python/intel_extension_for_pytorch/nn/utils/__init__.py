"""What `ipex.optimize` consists of: replaced modules, casts of parameters, folding."""
