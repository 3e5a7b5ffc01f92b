"""The TFLite dialect: int8 operators with numpy references, bit-exact with LiteRT's reference kernels."""
