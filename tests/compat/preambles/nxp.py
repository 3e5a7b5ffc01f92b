# The page leaves its model and its calibration data to the reader.
import torch

torch.manual_seed(0)


def get_model_in_aten_dialect():
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 4 * 4, 10)).eval()
    return torch.export.export(model, (torch.randn(1, 3, 8, 8),)).module()


def get_calibration_inputs():
    return [(torch.randn(1, 3, 8, 8),) for _ in range(4)]
