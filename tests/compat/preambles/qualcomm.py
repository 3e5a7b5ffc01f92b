# The page leaves its model, and what to do with it, to the reader.
import sys

import torch

torch.manual_seed(0)
quantization_type = sys.argv[1]
quantized = quantization_type != "none"
training_steps = 2


class YourModelClass(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 1))
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))
