/* A text that grows. */
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char* text;
  size_t used, room;
} Text;

static void say(Text* t, const char* format, ...) {
  va_list given;
  va_start(given, format);
  int more = vsnprintf(NULL, 0, format, given);
  va_end(given);
  if (t->used + more + 1 > t->room) {
    t->room = 2 * (t->used + more + 1);
    t->text = realloc(t->text, t->room);
  }
  va_start(given, format);
  vsnprintf(t->text + t->used, more + 1, format, given);
  va_end(given);
  t->used += more;
}
