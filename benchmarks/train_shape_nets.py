"""Train nets of seven sizes on made images, and write down what they say of 8,000 others.

    python benchmarks/train_shape_nets.py OUT.npz [--images 12000] [--epochs 8] [--device cpu]

``shape_nets.npz`` has four of them. OUT.npz gets a probability for each class in steps of 1/255,
the true class, the multiplications of one image, and what was trained how. On one core 8 epochs of
12,000 images are too few: the tiny net was right on .54 of the images, the medium one on .45.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from _shapes import make_shape_images
from torch import nn

# First width, blocks at each of three sizes, the side that the image is pooled to first, and how
# many times as many epochs: small nets learn slowly and cost little.
NETS = {
    "tiny": (6, 0, 16, 2),
    "small": (12, 0, 16, 2),
    "narrow": (10, 0, 32, 1.5),
    "pooled": (16, 1, 16, 1),
    "medium": (18, 0, 32, 1),
    "deep": (16, 1, 32, 1),
    "wide": (32, 1, 32, 1),
}
N_ANSWERED = 8000


class Block(nn.Module):
    """Two convolutions and what went in."""

    def __init__(self, width):
        super().__init__()
        self.both = nn.Sequential(*convolution(width, width, 1), *convolution(width, width, 1)[:2])

    def forward(self, x):
        return torch.relu(x + self.both(x))


def convolution(before, after, stride):
    return [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]


def net_of(width, blocks, side):
    layers = [nn.AvgPool2d(32 // side)] if side < 32 else []
    layers += convolution(3, width, 1)
    for stage in range(3):
        layers += [Block(width << stage) for _ in range(blocks)]
        layers += convolution(width << stage, width << (stage + 1), 2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << 3, 10))


def multiplications(net):
    """Multiplications and additions of one image, counted in convolutions and the last layer."""
    counted = []

    def count(module, inputs, output):
        counted.append(module.weight[0].numel() * output[0].numel())

    layers = [one for one in net.modules() if isinstance(one, (nn.Conv2d, nn.Linear))]
    hooks = [one.register_forward_hook(count) for one in layers]
    net.eval()(torch.zeros(1, 3, 32, 32, device=next(net.parameters()).device))
    for hook in hooks:
        hook.remove()
    return sum(counted)


def batches_of(X, device):
    return torch.as_tensor(X, device=device).permute(0, 3, 1, 2)


def train(name, X, y, epochs, device):
    torch.manual_seed(0)
    net = net_of(*NETS[name][:3]).to(device).train()
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.02)
    size, loss_of = 64, nn.CrossEntropyLoss()
    steps = int(epochs * NETS[name][3]) * (len(X) // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for step in range(steps):
        epoch, at = divmod(step * size, len(X) // size * size)
        if at == 0:
            order = torch.randperm(len(X), generator=torch.Generator().manual_seed(epoch))
        mirrored, turned = np.random.default_rng(step).random(2) < 0.5
        rows = order[at : at + size].to(device)
        images = X[rows].float().div(127.5).sub(1)
        # A shape stays what it is in a mirror and on its side.
        images = images.flip(3) if mirrored else images
        images = images.transpose(2, 3) if turned else images
        optimizer.zero_grad()
        loss_of(net(images), y[rows]).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


def answers(net, X):
    with torch.inference_mode():
        parts = [net(part.float().div(127.5).sub(1)).softmax(1) for part in X.split(500)]
    return torch.cat(parts).cpu().numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=12_000, help="images to learn from")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    (X, y), (X_new, y_new) = make_shape_images(options.images, 1), make_shape_images(N_ANSWERED, 2)
    X, X_new = batches_of(X, options.device), batches_of(X_new, options.device)
    y = torch.as_tensor(y, device=options.device)
    told, costs = [], []
    for name in NETS:
        net = train(name, X, y, options.epochs, options.device)
        told.append(np.round(255 * answers(net, X_new)).astype(np.uint8))
        costs.append(multiplications(net))
        right = (told[-1].argmax(1) == y_new).mean()
        print(f"{name:>8}: {costs[-1]:>12,} multiplications, {right:.4f} right", flush=True)
    np.savez_compressed(
        options.out,
        proba=np.stack(told, axis=1),
        target=y_new.astype(np.uint8),
        cost=np.array(costs),
        model_names=np.array(list(NETS)),
        trained=np.array(
            f"{options.images} images, {options.epochs} epochs, {options.device}, "
            f"torch {torch.__version__}"
        ),
    )


if __name__ == "__main__":
    main()
