"""Files that each release of ExecuTorch made, with the outputs of its own runtime."""
