"""Reports of programs: plain data collected from files, and one self-contained HTML page. Needs no torch."""
