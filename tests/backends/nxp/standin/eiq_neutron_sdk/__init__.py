"""A stand-in with the interface of NXP's SDK: it wraps a whole graph as one NeutronGraph with made-up microcode."""
