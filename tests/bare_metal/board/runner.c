/* Runs the model once and prints the output bytes, the bytes of stack and the ticks of SysTick that it took. */
#include "input.h"
#include "model.h"

void print(const char *text);
extern uint32_t stack_top[], bss_end[];

#define STK_CTRL (*(volatile uint32_t *)0xE000E010)
#define STK_LOAD (*(volatile uint32_t *)0xE000E014)
#define STK_VAL (*(volatile uint32_t *)0xE000E018)
#define PAINT 0xA5C3F00Du

static uint8_t arena[MODEL_ARENA_SIZE + 16] __attribute__((aligned(16)));
static uint8_t output[MODEL_OUTPUT_0_SIZE] __attribute__((aligned(16)));

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

int main(void) {
  uint32_t *low = bss_end, *sp;
  for (int i = 0; i < 16; i++) arena[MODEL_ARENA_SIZE + i] = 0x5a;
  const model_inputs in = {(const void *)input_bytes};
  model_outputs out = {(void *)output};
  STK_LOAD = 0xFFFFFF;
  STK_VAL = 0;
  STK_CTRL = 5;
  const uint32_t start = STK_VAL;
  loop();
  const uint32_t looped = STK_VAL;
  __asm__ volatile("mov %0, sp" : "=r"(sp));
  for (uint32_t *at = low; at < sp; at++) *(volatile uint32_t *)at = PAINT; /* nothing below sp is in use */
  const uint32_t before = STK_VAL;
  const int result = model_run(&in, &out, arena);
  const uint32_t after = STK_VAL;
  while (low < sp && *(volatile uint32_t *)low == PAINT) low++;
  for (int i = 0; i < 16; i++)
    if (arena[MODEL_ARENA_SIZE + i] != 0x5a) return 90; /* wrote beyond its arena */
  print("loop ");
  hex((start - looped) & 0xFFFFFF, 8);
  print(" ticks ");
  hex((before - after) & 0xFFFFFF, 8);
  print(" stack ");
  hex((uint32_t)((char *)sp - (char *)low), 8);
  print(" output ");
  for (uint32_t i = 0; i < MODEL_OUTPUT_0_SIZE; i++) hex(output[i], 2);
  print("\n");
  return result;
}
