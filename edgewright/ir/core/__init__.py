"""What operators of device graphs do, in numpy, by families. ``edgewright.ir.core.execute`` runs them."""
