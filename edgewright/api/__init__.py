"""The whole way of a model in one call: data, quantization, targets, results."""
