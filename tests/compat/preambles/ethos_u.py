# The page would download weights.
import torch

from tests.compat import torchvision

torchvision.install()
torch.manual_seed(0)
