# To be sourced by bash: oneCCL's variables without those of MPI (see setvars.sh).
# shellcheck shell=bash
CCL_ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
export CCL_ROOT
