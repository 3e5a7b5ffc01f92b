"""The graph IR of every stage after the front end, its dialects, and their reference semantics. No torch here."""
