/* Start-up code for QEMU's Arm MPS boards: vector table, FPU, memory initialization, semihosting. Runs run_model() of
 * runner.c and exits with its result. */
#include <stddef.h>
#include <stdint.h>

extern uint32_t stack_top[], data_start[], data_end[], data_load[], bss_start[], bss_end[];
int main(void);

/* Semihosting: r0 the operation, r1 its argument. */
int semihost(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void print(const char *text) { semihost(0x04, text); }

void exit_with(int code) {
  const uint32_t block[2] = {0x20026, (uint32_t)code}; /* ADP_Stopped_ApplicationExit */
  semihost(0x20, block);
  for (;;) {
  }
}

/* Without a C library; GCC must not turn the loops into calls of themselves. */
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memcpy(void *target, const void *source, size_t n) {
  char *to = target;
  const char *from = source;
  while (n--) *to++ = *from++;
  return target;
}

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memset(void *target, int value, size_t n) {
  char *to = target;
  while (n--) *to++ = (char)value;
  return target;
}

void reset(void) {
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* CPACR: the FPU and Helium */
  __asm__ volatile("dsb\n isb");
  memcpy(data_start, data_load, (size_t)((char *)data_end - (char *)data_start));
  memset(bss_start, 0, (size_t)((char *)bss_end - (char *)bss_start));
  exit_with(main());
}

static void fault(void) {
  print("fault\n");
  exit_with(99);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
