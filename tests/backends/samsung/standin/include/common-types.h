/* The types of a stand-in for AI LiteCore's interface. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef uint32_t TENSOR_ID_T;
typedef uint32_t NODE_ID_T;
typedef uint32_t DIM_T;
typedef void* GraphHandler;

typedef enum { UNKNOWN, UINT64, INT64, UINT32, INT32, FLOAT32, FLOAT64, BOOL, CHAR } ScalarType;
typedef enum { SUCCESS, FAILURE } GraphWrapperReturn;

typedef struct ParamWrapper {
  uint32_t size; /* elements */
  void* data;
  bool is_scalar;
  ScalarType type;
} ParamWrapper;
