/* The C interface: loads an artifact, says what it takes, and runs it once on zeros. */
#include <ipex/model_c.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t kItemSize[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};

static size_t element_count(int32_t rank, const int64_t* sizes) {
  size_t count = 1;
  for (int32_t d = 0; d < rank; ++d) count *= (size_t)sizes[d];
  return count;
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, ipex_last_error());
  return 1;
}

int main(int argc, char** argv) {
  ipex_model* model = NULL;
  if (ipex_model_load(argc > 1 ? argv[1] : NULL, NULL, &model) != IPEX_OK) return fail("load");
  const int32_t inputs = ipex_model_input_count(model), outputs = ipex_model_output_count(model);
  ipex_tensor* in = calloc((size_t)inputs + 1, sizeof(*in));
  ipex_tensor* out = calloc((size_t)outputs + 1, sizeof(*out));
  for (int32_t i = 0; i < inputs; ++i) {
    ipex_tensor_info info;
    if (ipex_model_input(model, i, &info) != IPEX_OK) return fail("input");
    in[i] = (ipex_tensor){calloc(element_count(info.rank, info.low), kItemSize[info.dtype]), info.dtype, info.rank, info.low, NULL};
    printf("input %s rank %d\n", info.name, (int)info.rank);
  }
  for (int32_t k = 0; k < outputs; ++k) {
    ipex_tensor_info info;
    if (ipex_model_output(model, k, &info) != IPEX_OK) return fail("output");
    int64_t* sizes = calloc((size_t)info.rank + 1, sizeof(*sizes));
    if (ipex_model_output_sizes(model, in, k, sizes) != IPEX_OK) return fail("sizes");
    out[k] = (ipex_tensor){calloc(element_count(info.rank, sizes), kItemSize[info.dtype]), info.dtype, info.rank, sizes, NULL};
    printf("output %s rank %d\n", info.name, (int)info.rank);
  }
  if (ipex_model_run(model, in, out) != IPEX_OK) return fail("run");
  for (int32_t i = 0; i < ipex_model_state_count(model); ++i) {
    const char* name;
    ipex_tensor buffer;
    if (ipex_model_state(model, i, &name, &buffer) != IPEX_OK) return fail("state");
    printf("buffer %s rank %d, first byte %d\n", name, (int)buffer.rank, *(unsigned char*)buffer.data);
  }
  const ipex_status refused = inputs > 0 ? (in[0].rank += 1, ipex_model_run(model, NULL, out)) : IPEX_USER_ERROR;
  printf("ran; without inputs: status %d, %s\n", (int)refused, ipex_last_error());
  ipex_model_free(model);
  return refused == IPEX_USER_ERROR ? 0 : 1;
}
