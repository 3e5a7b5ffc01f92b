/* Runs the model on each input and prints the output bytes, the bytes of stack and the ticks of SysTick. */
#include "input.h"
#include "model.h"

void print(const char *text);
void *memcpy(void *target, const void *source, size_t n);
void *memset(void *target, int value, size_t n);
extern uint32_t stack_top[], bss_end[];

#define STK_CTRL (*(volatile uint32_t *)0xE000E010)
#define STK_LOAD (*(volatile uint32_t *)0xE000E014)
#define STK_VAL (*(volatile uint32_t *)0xE000E018)
#define PAINT 0xA5C3F00Du

static void hex(uint32_t value, int digits) {
  char text[9];
  text[digits] = 0;
  for (int i = digits - 1; i >= 0; i--, value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  print(text);
}

/* 2,000,000 instructions: the length of a tick is measured, not assumed. QEMU's -icount gives each the same time. */
static void loop(void) {
  uint32_t count = 1000000;
  __asm__ volatile(".p2align 2\n1: subs %0, %0, #1\n bne 1b" : "+r"(count) : : "cc");
}

/* Buffers are aligned for their elements only, arena and outputs hold garbage, and what surrounds them is compared. */
static uint8_t arena[MODEL_ARENA_SIZE + 16] __attribute__((aligned(16)));
static uint8_t input[MODEL_INPUT_0_SIZE + 32] __attribute__((aligned(16)));
static uint8_t output[MODEL_OUTPUT_0_SIZE + 32] __attribute__((aligned(16)));

static int intact(const uint8_t *at, int count) {
  while (count--)
    if (*at++ != 0x5a) return 0;
  return 1;
}

static int run(const unsigned char *bytes) {
  uint32_t *low = bss_end, *sp;
  const int offset = sizeof(*((model_inputs *)0)->input0), shift = sizeof(*((model_outputs *)0)->output0);
  const model_inputs in = {(const void *)(input + offset)};
  model_outputs out = {(void *)(output + shift)};
  memset(arena, 0x5a, sizeof arena);
  memset(output, 0x5a, sizeof output);
  memcpy(input + offset, bytes, MODEL_INPUT_0_SIZE);
  __asm__ volatile("mov %0, sp" : "=r"(sp));
  for (uint32_t *at = low; at < sp; at++) *(volatile uint32_t *)at = PAINT; /* nothing below sp is in use */
  const uint32_t before = STK_VAL;
  const int result = model_run(&in, &out, arena);
  const uint32_t after = STK_VAL;
  while (low < sp && *(volatile uint32_t *)low == PAINT) low++;
  if (!intact(arena + MODEL_ARENA_SIZE, 16) || !intact(output, shift) ||
      !intact(output + shift + MODEL_OUTPUT_0_SIZE, 32 - shift))
    return 90; /* wrote beyond its memory */
  print("ticks ");
  hex((before - after) & 0xFFFFFF, 8);
  print(" stack ");
  hex((uint32_t)((char *)sp - (char *)low), 8);
  print(" output ");
  for (uint32_t i = 0; i < MODEL_OUTPUT_0_SIZE; i++) hex(output[shift + i], 2);
  print("\n");
  return result;
}

int main(void) {
  STK_LOAD = 0xFFFFFF;
  STK_VAL = 0;
  STK_CTRL = 5;
  const uint32_t start = STK_VAL;
  loop();
  const uint32_t looped = STK_VAL;
  print("loop ");
  hex((start - looped) & 0xFFFFFF, 8);
  print("\n");
  int result = 0;
  for (int i = 0; i < RUNS && result == 0; i++) result = run(input_bytes + i * MODEL_INPUT_0_SIZE);
  return result;
}
