/* Stands in for libgraphgen_api.so: what it makes of a graph is a line about itself and the graph, byte for byte.
 * It knows one chip, 9955. Without MODES it is an older release. */
#include "graphgen_common.h"
#include "text.h"

typedef enum { SUCCESS, FAILURE } GraphGenResult;

typedef struct {
  int soc, mode, open;
} Compiler;

void* graphgen_create(void) { return calloc(1, sizeof(Compiler)); }

GraphGenResult graphgen_initialize_context(void* h, int soc) {
  ((Compiler*)h)->soc = soc;
  printf("stand-in: chip %d\n", soc); /* native code talks */
  return soc == 9955 ? SUCCESS : FAILURE;
}

#ifdef MODES
GraphGenResult graphgen_set_perf_mode(void* h, int mode) {
  ((Compiler*)h)->mode = mode;
  return SUCCESS;
}
#endif

GraphGenResult graphgen_generate(void* h, uint8_t* model, size_t size, NNCBuffer** out) {
  Compiler* c = h;
  Text head = {0};
  say(&head, "{\"call\": \"generate\", \"soc\": %d, \"mode\": %d, \"bytes\": %zu}\n", c->soc, c->mode, size);
  NNCBuffer* made = malloc(sizeof(NNCBuffer));
  made->size = head.used + size;
  made->addr = malloc(made->size);
  memcpy(made->addr, head.text, head.used);
  memcpy(made->addr + head.used, model, size);
  free(head.text);
  c->open++;
  *out = made;
  return SUCCESS;
}

GraphGenResult graphgen_release_buffer(void* h, NNCBuffer* buffer) {
  ((Compiler*)h)->open--;
  free(buffer->addr);
  free(buffer);
  return SUCCESS;
}

void graphgen_release(void* h) {
  if (((Compiler*)h)->open) abort(); /* a buffer was not given back */
  free(h);
}
