// oneDNN's C++ interface, without the functions for sparse memory: in oneDNN 3.2 they are experimental, and
// some builds of later versions lack them. So what was compiled with oneDNN 3.2 also runs with later ones.
#pragma once

#include <oneapi/dnnl/dnnl_config.h>
#undef DNNL_EXPERIMENTAL_SPARSE
#include <dnnl.hpp>
