# To be sourced by bash: the script of the package that this one is an older name of.
# shellcheck shell=bash source=../../oneccl_bindings_for_pytorch/env/vars.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../oneccl_bindings_for_pytorch/env/vars.sh"
