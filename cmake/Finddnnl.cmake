# Finds oneDNN: the target DNNL::dnnl, and dnnl_VERSION.
#
# By its header and its library, because some packages of oneDNN contain no CMake package. The first directory of dnnl_ROOT,
# CMAKE_PREFIX_PATH and the system that has the header is taken; the library must be below the same directory, so that a header
# never meets the library of another version.
# Last come the directories of PATH, as in CMake's own search for packages: there pip puts what an isolated build needs.
string(REPLACE ":" ";" _paths "$ENV{PATH}")
list(FILTER _paths INCLUDE REGEX "/bin/?$")
list(TRANSFORM _paths REPLACE "/bin/?$" "")
find_path(dnnl_INCLUDE_DIR oneapi/dnnl/dnnl.hpp PATHS ${_paths} PATH_SUFFIXES include)
get_filename_component(_prefix "${dnnl_INCLUDE_DIR}" DIRECTORY)
find_library(dnnl_LIBRARY NAMES dnnl libdnnl.so.3 HINTS "${_prefix}" PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE}
             NO_DEFAULT_PATH)
mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)

unset(dnnl_VERSION)
foreach(_part MAJOR MINOR PATCH)
  set(_line)
  if(EXISTS "${dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
    file(STRINGS "${dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" _line REGEX "define DNNL_VERSION_${_part} ")
  endif()
  string(REGEX MATCH "[0-9]+$" _number "${_line}")
  list(APPEND dnnl_VERSION ${_number})
endforeach()
list(JOIN dnnl_VERSION "." dnnl_VERSION)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dnnl REQUIRED_VARS dnnl_LIBRARY dnnl_INCLUDE_DIR VERSION_VAR dnnl_VERSION HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "Any oneDNN 3.x will do: install onednn-devel-cpu-gomp from PyPI, or name a directory that has include/ \
and lib/ with -D dnnl_ROOT=DIR")

if(dnnl_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl SHARED IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${dnnl_LIBRARY}" IMPORTED_SONAME libdnnl.so.3
                        INTERFACE_INCLUDE_DIRECTORIES "${dnnl_INCLUDE_DIR}")
endif()
