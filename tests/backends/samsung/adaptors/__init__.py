"""Stand-ins, in Python, for the two native modules of a source build of ExecuTorch. What they hear they give back as
the compiled graph, in JSON."""
