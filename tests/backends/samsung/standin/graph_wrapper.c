/* Stands in for libgraph_wrapper.so: every call becomes a line of JSON, and a serialized graph is those lines.
 * A tensor called "refuse" is refused; one called "crash" ends the process. */
#include "common-types.h"
#include "text.h"

typedef struct {
  Text log;
  TENSOR_ID_T tensors;
  NODE_ID_T nodes;
} Graph;

static void say_ids(Text* t, const char* key, const TENSOR_ID_T* ids, uint64_t count) {
  say(t, ", \"%s\": [", key);
  for (uint64_t i = 0; i < count; ++i) say(t, "%s%u", i ? ", " : "", ids[i]);
  say(t, "]");
}

static void say_param(Text* t, ParamWrapper p) {
  if (p.type == CHAR) {
    say(t, "{\"type\": \"CHAR\", \"scalar\": %d, \"value\": \"%.*s\"}", p.is_scalar, (int)p.size, (char*)p.data);
    return;
  }
  static const char* names[] = {"UNKNOWN", "UINT64", "INT64", "UINT32", "INT32", "FLOAT32", "FLOAT64", "BOOL"};
  say(t, "{\"type\": \"%s\", \"scalar\": %d, \"value\": [", names[p.type], p.is_scalar);
  for (uint32_t i = 0; i < p.size; ++i) {
    if (i) say(t, ", ");
    switch (p.type) {
      case UINT64: say(t, "%lu", ((uint64_t*)p.data)[i]); break;
      case INT64: say(t, "%ld", ((int64_t*)p.data)[i]); break;
      case UINT32: say(t, "%u", ((uint32_t*)p.data)[i]); break;
      case INT32: say(t, "%d", ((int32_t*)p.data)[i]); break;
      case FLOAT32: say(t, "%.9g", ((float*)p.data)[i]); break;
      case FLOAT64: say(t, "%.17g", ((double*)p.data)[i]); break;
      case BOOL: say(t, "%s", ((bool*)p.data)[i] ? "true" : "false"); break;
      default: say(t, "null");
    }
  }
  say(t, "]}");
}

GraphHandler create_graph(const char* name) {
  Graph* g = calloc(1, sizeof(Graph));
  say(&g->log, "{\"call\": \"create_graph\", \"name\": \"%s\"}\n", name);
  return g;
}

GraphWrapperReturn define_tensor(GraphHandler h, TENSOR_ID_T* id, const char* name, const DIM_T* dims, uint32_t count,
                                 const char* type, const char* layout) {
  Graph* g = h;
  if (!strcmp(name, "refuse")) return FAILURE;
  if (!strcmp(name, "crash")) abort();
  *id = 100 + g->tensors++; /* not a place in a list */
  say(&g->log, "{\"call\": \"define_tensor\", \"id\": %u, \"name\": \"%s\", \"dtype\": \"%s\", \"layout\": \"%s\"", *id,
      name, type, layout);
  say_ids(&g->log, "dims", dims, count);
  say(&g->log, "}\n");
  return SUCCESS;
}

GraphWrapperReturn set_data_for_constant_tensor(GraphHandler h, TENSOR_ID_T id, const void* data, uint32_t bytes) {
  Graph* g = h;
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (uint32_t i = 0; i < bytes; ++i) hash = (hash ^ ((const uint8_t*)data)[i]) * 1099511628211u;
  say(&g->log, "{\"call\": \"set_data\", \"id\": %u, \"bytes\": %u, \"fnv\": \"%016lx\"}\n", id, bytes, hash);
  return SUCCESS;
}

GraphWrapperReturn set_quantize_param_for_tensor(GraphHandler h, TENSOR_ID_T id, const char* type, ParamWrapper scales,
                                                 ParamWrapper zeros) {
  Graph* g = h;
  say(&g->log, "{\"call\": \"set_quantize_param\", \"id\": %u, \"type\": \"%s\", \"scales\": ", id, type);
  say_param(&g->log, scales);
  say(&g->log, ", \"zero_points\": ");
  say_param(&g->log, zeros);
  say(&g->log, "}\n");
  return SUCCESS;
}

GraphWrapperReturn define_op_node(GraphHandler h, NODE_ID_T* id, const char* name, const char* type,
                                  const TENSOR_ID_T* in, uint64_t ins, const TENSOR_ID_T* out, uint64_t outs) {
  Graph* g = h;
  *id = 500 + g->nodes++;
  say(&g->log, "{\"call\": \"define_op\", \"id\": %u, \"name\": \"%s\", \"type\": \"%s\"", *id, name, type);
  say_ids(&g->log, "inputs", in, ins);
  say_ids(&g->log, "outputs", out, outs);
  say(&g->log, "}\n");
  return SUCCESS;
}

GraphWrapperReturn add_op_parameter(GraphHandler h, NODE_ID_T id, const char* key, ParamWrapper value) {
  Graph* g = h;
  say(&g->log, "{\"call\": \"add_param\", \"id\": %u, \"key\": \"%s\", \"param\": ", id, key);
  say_param(&g->log, value);
  say(&g->log, "}\n");
  return SUCCESS;
}

static GraphWrapperReturn ends(Graph* g, const char* call, const TENSOR_ID_T* ids, uint64_t count) {
  say(&g->log, "{\"call\": \"%s\"", call);
  say_ids(&g->log, "ids", ids, count);
  say(&g->log, "}\n");
  return SUCCESS;
}

GraphWrapperReturn set_graph_input_tensors(GraphHandler h, const TENSOR_ID_T* ids, uint64_t count) {
  return ends(h, "inputs", ids, count);
}

GraphWrapperReturn set_graph_output_tensors(GraphHandler h, const TENSOR_ID_T* ids, uint64_t count) {
  return ends(h, "outputs", ids, count);
}

GraphWrapperReturn finish_build_graph(GraphHandler h) {
  say(&((Graph*)h)->log, "{\"call\": \"finish\"}\n");
  return SUCCESS;
}

GraphWrapperReturn serialize(GraphHandler h, uint8_t** out, uint64_t* bytes) {
  Graph* g = h;
  *out = (uint8_t*)g->log.text;
  *bytes = g->log.used;
  return SUCCESS;
}

void release_graph(GraphHandler h) {
  Graph* g = h;
  free(g->log.text);
  free(g);
}
