"""The ATen dialect: one table of operators, and what each means in numpy."""
