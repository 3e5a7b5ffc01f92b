"""The graph that every stage after the front end reads, its dialects, and what their operators mean. No torch here."""
