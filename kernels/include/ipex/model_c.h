/* The C interface of <ipex/model.h>, with plain data and without exceptions.
 *
 * Functions return a status; ipex_last_error() describes the last failure on the calling thread. The caller
 * frees models. Any number of threads may run a model at once. */
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
  IPEX_USER_ERROR = 1,  /* an unsuitable file or input, or an assertion of the model failed */
  IPEX_INDEX_ERROR = 2, /* an index is outside of its tensor */
  IPEX_OUT_OF_MEMORY = 3,
  IPEX_INTERNAL_ERROR = 4 /* a bug in the library */
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
  const char* weights;       /* file of weights that are not in the artifact; NULL: <path>.weights */
  int32_t skip_verification; /* do not check the weights' checksums */
  int32_t lazy;              /* pack weights in the first run instead of while loading */
  int32_t threads;           /* per run; 0: OpenMP's setting */
} ipex_options;

/* Describes an input or output before a call. A size is fixed if low == high. */
typedef struct {
  const char* name; /* valid as long as the model exists */
  ipex_dtype dtype;
  int32_t rank;
  const int64_t *low, *high; /* range of the size of each dimension */
} ipex_tensor_info;

ipex_status ipex_model_load(const char* path, const ipex_options* options, ipex_model** model);
void ipex_model_free(ipex_model* model); /* accepts NULL */

int32_t ipex_model_input_count(const ipex_model* model);
int32_t ipex_model_output_count(const ipex_model* model);
ipex_status ipex_model_input(const ipex_model* model, int32_t index, ipex_tensor_info* info);
ipex_status ipex_model_output(const ipex_model* model, int32_t index, ipex_tensor_info* info);

/* Buffers of the model that a run writes to. The memory of `tensor` is valid as long as the model exists, and
 * may be read and overwritten between runs. */
int32_t ipex_model_state_count(const ipex_model* model);
ipex_status ipex_model_state(const ipex_model* model, int32_t index, const char** name, ipex_tensor* tensor);

/* Computes the sizes of output `index` for these inputs. `sizes` must have room for its rank. */
ipex_status ipex_model_output_sizes(const ipex_model* model, const ipex_tensor* inputs, int32_t index,
                                    int64_t* sizes);
/* Runs the model. `inputs` and `outputs` must have all inputs and outputs; results are written to their
 * memory. */
ipex_status ipex_model_run(const ipex_model* model, const ipex_tensor* inputs, const ipex_tensor* outputs);

const char* ipex_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
