/* The C interface of <ipex/model.h>: plain data in and out, no exception crosses it.
 *
 * Functions return a status; ipex_last_error() says what failed last on the calling thread. Handles are freed
 * by their owner; a model may be run from any number of threads at once. */
#ifndef IPEX_MODEL_C_H
#define IPEX_MODEL_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ipex_model ipex_model;

typedef enum {
  IPEX_OK = 0,
  IPEX_USER_ERROR = 1,  /* a file or an input is not what it has to be, or what the model asserts of it */
  IPEX_INDEX_ERROR = 2, /* an index is outside its tensor */
  IPEX_OUT_OF_MEMORY = 3,
  IPEX_INTERNAL_ERROR = 4 /* a bug of the library */
} ipex_status;

typedef enum {
  IPEX_BOOL,
  IPEX_U8,
  IPEX_I8,
  IPEX_I16,
  IPEX_I32,
  IPEX_I64,
  IPEX_F16,
  IPEX_BF16,
  IPEX_F32,
  IPEX_F64
} ipex_dtype;

typedef struct {
  void* data;
  ipex_dtype dtype;
  int32_t rank;
  const int64_t* sizes;
  const int64_t* strides; /* in elements; NULL: row-major */
} ipex_tensor;

typedef struct {
  const char* weights; /* NULL: <path>.weights, when the artifact does not hold them */
  int32_t skip_verification, lazy;
  int32_t threads; /* of one run; 0: OpenMP's setting */
} ipex_options;

/* What is known of an input or output before a call; `sizes` are -1 where a size is known per call. */
typedef struct {
  const char* name; /* valid as long as the model */
  ipex_dtype dtype;
  int32_t rank;
  const int64_t *low, *high; /* by dimension; equal where the size is fixed */
} ipex_tensor_info;

ipex_status ipex_model_load(const char* path, const ipex_options* options, ipex_model** model);
void ipex_model_free(ipex_model* model); /* NULL is fine */

int32_t ipex_model_input_count(const ipex_model* model);
int32_t ipex_model_output_count(const ipex_model* model);
ipex_status ipex_model_input(const ipex_model* model, int32_t index, ipex_tensor_info* info);
ipex_status ipex_model_output(const ipex_model* model, int32_t index, ipex_tensor_info* info);

/* Buffers of the model that a run writes; what `tensor` points to is valid as long as the model, and its data
 * may be read and overwritten between runs. */
int32_t ipex_model_state_count(const ipex_model* model);
ipex_status ipex_model_state(const ipex_model* model, int32_t index, const char** name, ipex_tensor* tensor);

/* Sizes of output `index` for these inputs; `sizes` has room for its rank. */
ipex_status ipex_model_output_sizes(const ipex_model* model, const ipex_tensor* inputs, int32_t index,
                                    int64_t* sizes);
/* As many inputs and outputs as the model has; outputs are written where they point. */
ipex_status ipex_model_run(const ipex_model* model, const ipex_tensor* inputs, const ipex_tensor* outputs);

const char* ipex_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
