"""ResNet-50 as torchvision has it, written down from its documentation and not from our own network."""


def resnet50_shapes(classes):
    """The name and shape of every tensor of the state dict, without the batch counters."""
    shapes = {"conv1.weight": (64, 3, 7, 7), **_batch_norm("bn1", 64)}
    inward = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], start=1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            shapes |= {f"{name}.conv1.weight": (width, inward, 1, 1), **_batch_norm(f"{name}.bn1", width)}
            shapes |= {f"{name}.conv2.weight": (width, width, 3, 3), **_batch_norm(f"{name}.bn2", width)}
            outward = 4 * width
            shapes |= {f"{name}.conv3.weight": (outward, width, 1, 1), **_batch_norm(f"{name}.bn3", outward)}
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (outward, inward, 1, 1)
                shapes |= _batch_norm(f"{name}.downsample.1", outward)
            inward = outward
    return shapes | {"fc.weight": (classes, 2048), "fc.bias": (classes,)}


def _batch_norm(name, width):
    return {f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")}
