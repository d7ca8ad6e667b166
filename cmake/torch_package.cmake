# Sets IPEX_VERSION and IPEX_TORCH_SERIES ("2.14"), and makes the target ipex_torch: headers and libraries of the installed
# torch package. PyTorch's own find_package(Torch) is not used, because for a CUDA build of PyTorch it asks for a CUDA toolkit.
execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/torch_package.py
                OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(GET package 0 IPEX_VERSION)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" IPEX_TORCH_SERIES ${IPEX_VERSION})
list(GET package 1 torch)
list(GET package 2 abi)
list(GET package 3 torch_version)
set(IPEX_TORCH_LIBRARY_DIR ${torch}/lib)
add_library(ipex_torch INTERFACE)
target_include_directories(ipex_torch SYSTEM INTERFACE ${torch}/include ${torch}/include/torch/csrc/api/include)
target_compile_definitions(ipex_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${abi})
target_link_libraries(ipex_torch INTERFACE ${torch}/lib/libtorch_cpu.so ${torch}/lib/libc10.so)
set(IPEX_TORCH_PYTHON ${torch}/lib/libtorch_python.so)
# A build directory serves one PyTorch: another one is noticed, as is an upgrade.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${torch}/version.py)

# The number of tensors that share a version counter is a private member. Without it, more contents are compared.
include(CheckCXXSourceCompiles)
if(NOT IPEX_CHECKED_TORCH STREQUAL "${torch} ${torch_version}")
  unset(IPEX_READS_VERSION_COUNTER CACHE)
  set(IPEX_CHECKED_TORCH "${torch} ${torch_version}" CACHE INTERNAL "The PyTorch of the check below")
endif()
set(CMAKE_REQUIRED_INCLUDES ${torch}/include)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
check_cxx_source_compiles("
  #include <c10/core/TensorImpl.h>
  template <auto kCounter> struct Access {
    friend size_t sharers(const c10::VariableVersion& version) { return (version.*kCounter).use_count(); }
  };
  size_t sharers(const c10::VariableVersion& version);
  template struct Access<&c10::VariableVersion::version_counter_>;
  size_t used(const c10::VariableVersion& version) { return sharers(version); }" IPEX_READS_VERSION_COUNTER)
unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
unset(CMAKE_REQUIRED_INCLUDES)
