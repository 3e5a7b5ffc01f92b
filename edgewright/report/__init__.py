"""What there is to say of a compiled model: by module, by layer, and as a page."""
