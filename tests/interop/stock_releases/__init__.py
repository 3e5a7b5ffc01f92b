"""Programs of ours in every release of ExecuTorch that people have: ``python -m tests.interop.stock_releases``."""
