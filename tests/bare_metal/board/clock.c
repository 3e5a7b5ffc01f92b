/* Loops whose numbers of instructions are known, of instructions that take a processor different times; prints the ticks
 * of SysTick of each. */
#include <stdint.h>

void print(const char *text);

#define STK_CTRL (*(volatile uint32_t *)0xE000E010)
#define STK_LOAD (*(volatile uint32_t *)0xE000E014)
#define STK_VAL (*(volatile uint32_t *)0xE000E018)

static void hex(uint32_t value) {
  char text[10] = "00000000\n";
  for (int i = 7; i >= 0; i--, value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  print(text);
}

/* COUNT iterations of 10 instructions, 2 more before and 1 after them: r0 the counter, r1 the address of 16 bytes. */
#define LOOP(name, body)                                                                          \
  __attribute__((naked, noinline, used)) void name(uint32_t count, const void *data) {            \
    __asm__ volatile("movs r2, #3\n movs r3, #5\n.p2align 2\n1: " body "\n subs r0, #1\n bne 1b\n bx lr"); \
  }
#define FOUR(x) x "\n" x "\n" x "\n" x "\n"
LOOP(adds_loop, FOUR("adds r2, r2, r3") FOUR("eors r3, r2"))
LOOP(loads_loop, FOUR("ldr r2, [r1]") FOUR("ldrd r2, r3, [r1, #8]"))
LOOP(divisions_loop, FOUR("udiv r2, r2, r3") FOUR("smlad r2, r2, r3, r2"))
LOOP(floats_loop, FOUR("vmul.f32 s0, s1, s2") FOUR("vcvt.f32.s32 s3, s0"))

static const uint32_t data[4] = {1, 2, 3, 4};

static void measure(void (*loop)(uint32_t, const void *), uint32_t count) {
  const uint32_t before = STK_VAL;
  loop(count, data);
  hex((before - STK_VAL) & 0xFFFFFF);
}

int main(void) {
  STK_LOAD = 0xFFFFFF;
  STK_VAL = 0;
  STK_CTRL = 5;
  measure(adds_loop, COUNT);
  measure(loads_loop, COUNT);
  measure(divisions_loop, COUNT);
  measure(floats_loop, COUNT);
  measure(adds_loop, 3 * COUNT);
  return 0;
}
