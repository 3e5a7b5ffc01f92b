"""ctypes bindings of Qualcomm's QNN C API: structures, the library, graph building and execution."""
