// Loads and executes the programs named on standard input in ExecuTorch's runtime. For each it prints the path, the bytes
// that the method allocator gave out, those of the temp allocator at load and at execution, and what failed.
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

using namespace executorch::runtime;

namespace {

constexpr size_t kPool = 64u << 20;

// Counts the most that was in use at a time: the runtime empties the allocator after each instruction.
struct PeakAllocator : MemoryAllocator {
  using MemoryAllocator::MemoryAllocator;
  size_t peak = 0;
  void* allocate(size_t size, size_t alignment) override {
    void* result = MemoryAllocator::allocate(size, alignment);
    peak = std::max(peak, used_size());
    return result;
  }
};

// Stands for a backend of a board: takes a handle of 9 words from the method allocator, and computes nothing.
struct Npu final : BackendInterface {
  bool is_available() const override { return true; }
  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer*, ArrayRef<CompileSpec>) const override {
    return static_cast<DelegateHandle*>(context.get_runtime_allocator()->allocateList<void*>(9));
  }
  Error execute(BackendExecutionContext&, DelegateHandle*, Span<EValue*>) const override { return Error::Ok; }
};

uint8_t* aligned(std::vector<uint8_t>& bytes, size_t alignment) {
  auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return reinterpret_cast<uint8_t*>((address + alignment - 1) & ~(uintptr_t)(alignment - 1));
}

Error set_input(Method& method, const MethodMeta& meta, size_t index, std::vector<std::vector<uint8_t>>& buffers) {
  auto tensor = meta.input_tensor_meta(index);
  if (!tensor.ok()) {
    return tensor.error();
  }
  buffers.emplace_back(tensor->nbytes() + 1);
  std::vector<executorch::aten::SizesType> sizes(tensor->sizes().begin(), tensor->sizes().end());
  std::vector<executorch::aten::DimOrderType> order(tensor->dim_order().begin(), tensor->dim_order().end());
  std::vector<executorch::aten::StridesType> strides(sizes.size());
  (void)dim_order_to_stride(sizes.data(), order.data(), sizes.size(), strides.data());
  executorch::aten::TensorImpl impl(
      tensor->scalar_type(), sizes.size(), sizes.data(), buffers.back().data(), order.data(), strides.data());
  return method.set_input(EValue(executorch::aten::Tensor(&impl)), index);
}

void measure(const std::string& path, std::vector<uint8_t>& pool, std::vector<uint8_t>& temp) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> data((std::istreambuf_iterator<char>(file)), {});
  size_t size = data.size();
  std::vector<uint8_t> copy(size + 64);
  uint8_t* base = aligned(copy, 64);
  std::copy(data.begin(), data.end(), base);
  executorch::extension::BufferDataLoader loader(base, size);
  auto program = Program::load(&loader);
  if (!program.ok()) {
    printf("%s - - - program %d\n", path.c_str(), (int)program.error());
    return;
  }
  const char* name = *program->get_method_name(0);
  auto meta = program->method_meta(name);
  std::vector<std::vector<uint8_t>> arenas;
  std::vector<Span<uint8_t>> spans;
  for (size_t i = 0; i < meta->num_memory_planned_buffers(); i++) {
    arenas.emplace_back(*meta->memory_planned_buffer_size(i) + 16);
    spans.emplace_back(aligned(arenas.back(), 16), *meta->memory_planned_buffer_size(i));
  }
  HierarchicalAllocator planned({spans.data(), spans.size()});
  MemoryAllocator method_pool(kPool, aligned(pool, 16));
  PeakAllocator temp_pool(kPool, aligned(temp, 16));
  MemoryManager manager(&method_pool, &planned, &temp_pool);
  auto method = program->load_method(name, &manager);
  if (!method.ok()) {
    printf("%s - - - load %d\n", path.c_str(), (int)method.error());
    return;
  }
  size_t used = method_pool.used_size(), at_load = temp_pool.peak;
  temp_pool.peak = 0;
  std::vector<std::vector<uint8_t>> buffers;
  Error status = Error::Ok;
  for (size_t i = 0; i < method->inputs_size() && status == Error::Ok; i++) {
    status = set_input(*method, *meta, i, buffers);
  }
  if (status == Error::Ok) {
    status = method->execute();
  }
  printf("%s %zu %zu %zu %d\n", path.c_str(), used, at_load, temp_pool.peak, (int)status);
}

} // namespace

int main() {
  runtime_init();
  Npu npu;
  (void)register_backend({"EthosUBackend", &npu});
  std::vector<uint8_t> pool(kPool + 16), temp(kPool + 16);
  for (std::string path; std::getline(std::cin, path);) {
    measure(path, pool, temp);
    fflush(stdout);
  }
}
