// Functions between BEGIN and END are compiled for these features of the CPU, as `-m` options enable them for
// a file.
#pragma once

#define IPEX_PRAGMA(...) _Pragma(#__VA_ARGS__)
#ifdef __clang__
#define IPEX_BEGIN_TARGET(features) \
  IPEX_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define IPEX_END_TARGET IPEX_PRAGMA(clang attribute pop)
#else
#define IPEX_BEGIN_TARGET(features) IPEX_PRAGMA(GCC push_options) IPEX_PRAGMA(GCC target(features))
#define IPEX_END_TARGET IPEX_PRAGMA(GCC pop_options)
#endif
