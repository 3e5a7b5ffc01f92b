"""TOSA 1.0 as a device's operators: one table of what each is called, reads and means. No torch, no vendor's code."""
