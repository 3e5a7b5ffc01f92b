"""QNN's operators: what they mean, in numpy, as the HTP computes them."""
