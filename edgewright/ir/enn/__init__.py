"""The ENN dialect (Samsung's neural network SDK): operator table, verifier and numpy references."""
