"""From LLVM IR to running machine code: compilation, caches, the linker, threads, the driver of a compiled graph."""
