"""Train the nets whose answers `skroute.datasets.load_shape_nets` ships.

    python benchmarks/train_shape_nets.py [--images 20000] [--epochs 10] [--device cpu] OUT.npz

Seven convolutional nets of growing size learn the images of `make_shape_images`; what each says
of 8,000 images that none of them has seen is written to OUT.npz: a probability for each class in
steps of 1/255, the class that is true, multiplications and additions of one image, and what was
trained how. Net after net is kept beside OUT.npz under a name that has the digest of its
settings, so that a run that was cut off goes on.
"""

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from skroute.datasets import make_shape_images

# First width, blocks at each of three sizes, and the side that the image is pooled to first.
NETS = {
    "tiny": (6, 0, 16),
    "small": (12, 0, 16),
    "pooled": (16, 1, 16),
    "narrow": (10, 0, 32),
    "medium": (18, 0, 32),
    "deep": (16, 1, 32),
    "wide": (32, 1, 32),
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
    net = net_of(*NETS[name]).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.02)
    size = 128
    steps = epochs * (len(X) // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    loss_of = nn.CrossEntropyLoss()
    for _ in range(epochs):
        net.train()
        order = torch.randperm(len(X)).to(X.device)
        for at in range(0, len(X) - size + 1, size):
            rows = order[at : at + size]
            images = X[rows].float().div(127.5).sub(1)
            # A shape stays what it is in a mirror and upside down.
            if torch.rand(()) < 0.5:
                images = images.flip(3)
            if torch.rand(()) < 0.5:
                images = images.transpose(2, 3)
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
    parser.add_argument("--images", type=int, default=20_000, help="images to learn from")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    options = parser.parse_args()
    X, y = make_shape_images(options.images, random_state=1)
    X_new, y_new = make_shape_images(N_ANSWERED, random_state=2)
    images = hashlib.sha256(X_new.tobytes()).hexdigest()
    X, X_new = batches_of(X, options.device), batches_of(X_new, options.device)
    y = torch.as_tensor(y, device=options.device)
    told, costs, seconds = [], [], []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.nets:
        setting = json.dumps([name, NETS[name], options.images, options.epochs, images])
        kept = options.out.with_name(
            f"{name}-{hashlib.sha256(setting.encode()).hexdigest()[:12]}.npz"
        )
        start = time.perf_counter()
        if not kept.exists():
            net = train(name, X, y, options.epochs, options.device)
            probabilities = np.round(255 * answers(net, X_new)).astype(np.uint8)
            np.savez(kept, proba=probabilities, cost=multiplications(net))
        with np.load(kept) as one:
            told.append(one["proba"])
            costs.append(int(one["cost"]))
        seconds.append(time.perf_counter() - start)
        right = (told[-1].argmax(1) == y_new).mean()
        print(
            f"{name:>8}: {costs[-1]:>12,} multiplications, {right:.4f} right, {seconds[-1]:.0f} s",
            flush=True,
        )
    right = np.stack([one.argmax(1) == y_new for one in told], axis=1)
    print(f"right in at least one: {right.any(axis=1).mean():.4f}")
    np.savez_compressed(
        options.out,
        proba=np.stack(told, axis=1),
        target=y_new.astype(np.uint8),
        cost=np.array(costs),
        model_names=np.array(options.nets),
        trained=np.array(
            f"{options.images} images, {options.epochs} epochs, {options.device}, "
            f"torch {torch.__version__}"
        ),
    )
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
