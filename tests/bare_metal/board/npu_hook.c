/* The application's function for the NPU: sends what it is passed to a simulator on the host, and reads the scratch memory
 * back. NPU_REQUEST and NPU_REPLY are named pipes. */
#include "model.h"

int semihost(int operation, const void *argument);

enum { OPEN = 0x01, CLOSE = 0x02, WRITE = 0x05, READ = 0x06, READ_BINARY = 1, WRITE_BINARY = 5 };

static int open_file(const char *name, size_t length, int mode) {
  const uint32_t block[3] = {(uint32_t)name, (uint32_t)mode, length};
  return semihost(OPEN, block);
}

/* 0 if all bytes were moved; a pipe moves some of them at a time. */
static int transfer(int operation, int file, const void *bytes, size_t size) {
  const char *at = bytes;
  while (size) {
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)at, size};
    const int rest = semihost(operation, block);
    if (rest < 0 || (size_t)rest >= size) return 1;
    at += size - (size_t)rest;
    size = (size_t)rest;
  }
  return 0;
}

static void close_file(int file) {
  const uint32_t block[1] = {(uint32_t)file};
  semihost(CLOSE, block);
}

int model_npu_invoke(const void *commands, size_t commands_size, const void *weights, size_t weights_size, void *scratch,
                     size_t scratch_size) {
  const uint32_t sizes[3] = {commands_size, weights_size, scratch_size};
  const int request = open_file(NPU_REQUEST, sizeof NPU_REQUEST - 1, WRITE_BINARY);
  if (request < 0) return 1;
  int failed = transfer(WRITE, request, sizes, sizeof sizes) || transfer(WRITE, request, commands, commands_size) ||
               transfer(WRITE, request, weights, weights_size) || transfer(WRITE, request, scratch, scratch_size);
  close_file(request);
  const int reply = open_file(NPU_REPLY, sizeof NPU_REPLY - 1, READ_BINARY);
  if (reply < 0) return 1;
  failed = failed || transfer(READ, reply, scratch, scratch_size);
  close_file(reply);
  return failed;
}
