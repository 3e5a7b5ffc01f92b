"""What TFLite's 8-bit operators mean, in numpy: bit for bit what LiteRT's reference kernels compute."""
