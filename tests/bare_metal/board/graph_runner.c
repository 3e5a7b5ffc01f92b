/* Calls a model of any number of inputs and outputs once, and prints the bytes of every output on a line. Buffers are
 * aligned for their elements only, and what surrounds them and the arena is compared. */
#include "ports.h"

void print(const char *text);
void *memcpy(void *target, const void *source, size_t n);
void *memset(void *target, int value, size_t n);
int model_run(const void *const *inputs, void *const *outputs, void *arena);

#define GUARD 32
static uint8_t arena[ARENA_SIZE + GUARD] __attribute__((aligned(16)));
static uint8_t memory[INPUT_BYTES + OUTPUT_BYTES + (INPUTS + OUTPUTS + 1) * 4 * GUARD] __attribute__((aligned(16)));

static int intact(const uint8_t *at, uint32_t count) {
  while (count--)
    if (*at++ != 0x5a) return 0;
  return 1;
}

static void print_bytes(const uint8_t *bytes, uint32_t count) {
  char line[257];
  uint32_t used = 0;
  for (uint32_t i = 0; i < count; i++) {
    line[used++] = "0123456789abcdef"[bytes[i] >> 4];
    line[used++] = "0123456789abcdef"[bytes[i] & 15];
    if (used == 256 || i + 1 == count) {
      line[used] = 0;
      print(line);
      used = 0;
    }
  }
  print("\n");
}

int main(void) {
  const void *in[INPUTS];
  void *out[OUTPUTS];
  const unsigned char *from = input_bytes;
  uint8_t *at = memory + GUARD;
  memset(arena, 0x5a, sizeof arena);
  memset(memory, 0x5a, sizeof memory);
  for (int i = 0; i < INPUTS; i++) { /* a multiple of the element's size, of no larger power of two */
    at += GUARD - (uintptr_t)at % GUARD + input_items[i];
    in[i] = memcpy(at, from, input_sizes[i]);
    from += input_sizes[i];
    at += input_sizes[i] + GUARD;
  }
  for (int i = 0; i < OUTPUTS; i++) {
    at += GUARD - (uintptr_t)at % GUARD + output_items[i];
    out[i] = at;
    at += output_sizes[i] + GUARD;
  }
  const int result = model_run(in, out, arena);
  if (result != 0) return result;
  if (!intact(arena + ARENA_SIZE, GUARD)) return 90;
  from = input_bytes;
  for (int i = 0; i < INPUTS; i++) {
    const uint8_t *start = in[i];
    if (!intact(start - input_items[i], input_items[i]) || !intact(start + input_sizes[i], GUARD)) return 91;
    for (uint32_t k = 0; k < input_sizes[i]; k++)
      if (start[k] != *from++) return 92;
  }
  for (int i = 0; i < OUTPUTS; i++) {
    const uint8_t *start = out[i];
    if (!intact(start - output_items[i], output_items[i]) || !intact(start + output_sizes[i], GUARD)) return 93;
  }
  for (int i = 0; i < OUTPUTS; i++) print_bytes(out[i], output_sizes[i]);
  return 0;
}
