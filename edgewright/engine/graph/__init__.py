"""Device graphs on their way to a plan: legalization, fusion, layout assignment, memory planning and scheduling."""
