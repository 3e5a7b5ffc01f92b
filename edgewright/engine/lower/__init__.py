"""How each kind of node becomes steps. A lowering is tried after the other; the last one runs the reference."""
