# To be sourced by bash: finds the MPI launcher that `pip install impi-rt` put beside this package.
#
#     source $(python -c "import oneccl_bindings_for_pytorch as b; print(b.cwd)")/env/setvars.sh
#
# The backend itself needs none of it. Sourcing it again changes nothing. Works under `set -eu`.

# shellcheck shell=bash
CCL_ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
export CCL_ROOT

__ccl_setvars() {
  # <prefix>/lib/pythonX.Y/site-packages/oneccl_bindings_for_pytorch
  local prefix
  prefix=$(cd -- "$CCL_ROOT/../../../.." && pwd) || return 0
  [[ -x $prefix/bin/mpiexec.hydra && -e $prefix/lib/libmpi.so.12 ]] || return 0
  export I_MPI_ROOT=$prefix
  case ":${PATH-}:" in
    *":$prefix/bin:"*) ;;
    *) export PATH=$prefix/bin${PATH:+:$PATH} ;;
  esac
  # Last, because this folder may hold other libraries too.
  case ":${LD_LIBRARY_PATH-}:" in
    *":$prefix/lib:"*) ;;
    *) export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$prefix/lib ;;
  esac
}
__ccl_setvars
unset -f __ccl_setvars
