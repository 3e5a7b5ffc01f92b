"""Code generation: a builder of LLVM IR text, and vector arithmetic written with it."""
