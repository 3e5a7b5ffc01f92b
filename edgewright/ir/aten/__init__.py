"""The ATen dialect: the op table, with a numpy reference for every operator."""
