"""The zoo: public model architectures with random weights, compiled for every kind of target."""
