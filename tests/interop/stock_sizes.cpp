// Sizes and alignments of ExecuTorch's structures, as the sizes of symbols: any compiler's, without running anything.
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/kernel/operator_registry.h>

using namespace executorch::runtime;

#define MEASURE(name, ...)                    \
  extern "C" {                                \
  char size_##name[sizeof(__VA_ARGS__)];      \
  char align_##name[alignof(__VA_ARGS__)];    \
  }

// Two structures that the runtime declares in its sources, with their members.
struct Delegate {
  FreeableBuffer segment;
  const BackendInterface* backend;
  void* handle;
};
struct InstructionChain {
  const void* chain;
  Span<Span<EValue*>> arguments;
  OpFunction* kernels;
};

MEASURE(word, void*)
MEASURE(evalue, EValue)
MEASURE(tensor_impl, executorch::aten::TensorImpl)
MEASURE(tensor, executorch::aten::Tensor)
MEASURE(optional_tensor, std::optional<executorch::aten::Tensor>)
MEASURE(boxed_list, BoxedEvalueList<int64_t>)
MEASURE(boxed_tensors, BoxedEvalueList<executorch::aten::Tensor>)
MEASURE(boxed_optionals, BoxedEvalueList<std::optional<executorch::aten::Tensor>>)
MEASURE(array_ref, executorch::aten::ArrayRef<double>)
MEASURE(compile_spec, CompileSpec)
MEASURE(backend_delegate, Delegate)
MEASURE(chain, InstructionChain)
MEASURE(arguments, Span<EValue*>)
MEASURE(tensor_meta, TensorMeta)
MEASURE(op_function, OpFunction)
MEASURE(int64, int64_t)
MEASURE(sizes_type, executorch::aten::SizesType)
MEASURE(strides_type, executorch::aten::StridesType)
MEASURE(dim_order_type, executorch::aten::DimOrderType)
