/* The compiler's side of the stand-in. */
#pragma once
#include <stdint.h>

typedef struct NNCBuffer {
  uint8_t* addr;
  uint64_t size;
} NNCBuffer;
