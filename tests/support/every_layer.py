"""For each layer that an architecture may contain, a small net with this layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CLASSES = 3
FLAT, STEPS, PLANE, CUBE = (6,), (8, 4), (8, 8, 3), (6, 6, 6, 2)

Build = Callable[[Any, Any], Any]
"""Makes the tensor that comes out of a layer, of Keras' layers and the input."""


def _plain(name: str, **config: Any) -> Build:
    return lambda layers, x: getattr(layers, name)(**config)(x)


def _wrapped(name: str, inner: Callable[[Any], Any], **config: Any) -> Build:
    return lambda layers, x: getattr(layers, name)(inner(layers), **config)(x)


def _cell(make: Callable[[Any], Any]) -> Build:
    return lambda layers, x: layers.RNN(make(layers))(x)


def _merged(name: str, **config: Any) -> Build:
    """Return a builder that applies a layer to two different inputs, so that their order matters."""
    return lambda layers, x: getattr(layers, name)(**config)([layers.Dense(4)(x), layers.Dense(4)(x)])


def _shared(name: str, **config: Any) -> Build:
    """Return a builder for a layer that takes query and value as separate arguments."""
    return lambda layers, x: getattr(layers, name)(**config)(layers.Dense(4)(x), layers.Dense(4)(x))


def _embedded(name: str) -> Build:
    return lambda layers, x: getattr(layers, name)(5, 3)(layers.Discretization([-1.0, 0.0, 1.0, 2.0])(x))


NETS: dict[str, tuple[tuple[int, ...], Build]] = {
    **{
        name: (FLAT, _plain(name, **config))
        for name, config in {
            "Activation": {"activation": "tanh"},
            "ActivityRegularization": {"l2": 0.01},
            "AlphaDropout": {"rate": 0.2},
            "BatchNormalization": {},
            "Dense": {"units": 4, "activation": "relu"},
            "Discretization": {"bin_boundaries": [-0.5, 0.5], "output_mode": "int"},
            "Dropout": {"rate": 0.2},
            "ELU": {},
            "EinsumDense": {"equation": "ab,bc->ac", "output_shape": 4, "bias_axes": "c"},
            "Flatten": {},
            "GaussianDropout": {"rate": 0.2},
            "GaussianNoise": {"stddev": 0.2},
            "GroupNormalization": {"groups": 3},
            "Identity": {},
            "LayerNormalization": {},
            "LeakyReLU": {},
            "Normalization": {},
            "PReLU": {},
            "RMSNormalization": {},
            "ReLU": {"max_value": 1.0},
            "RepeatVector": {"n": 2},
            "Rescaling": {"scale": 0.1, "offset": 0.5},
            "Reshape": {"target_shape": [2, 3]},
            "Softmax": {},
            "UnitNormalization": {},
        }.items()
    },
    "InputLayer": (FLAT, lambda layers, x: x),
    "CategoryEncoding": (
        FLAT,
        lambda layers, x: layers.CategoryEncoding(num_tokens=4, output_mode="count")(
            layers.Discretization([-1.0, 0.0, 1.0])(x)
        ),
    ),
    "Embedding": (FLAT, _embedded("Embedding")),
    "ReversibleEmbedding": (FLAT, _embedded("ReversibleEmbedding")),
    "SpectralNormalization": (FLAT, _wrapped("SpectralNormalization", lambda layers: layers.Dense(4))),
    **{
        name: (STEPS, _plain(name, **config))
        for name, config in {
            "AdaptiveAveragePooling1D": {"output_size": 3},
            "AdaptiveMaxPooling1D": {"output_size": 3},
            "AveragePooling1D": {"pool_size": 2},
            "Conv1D": {"filters": 3, "kernel_size": 3},
            "Conv1DTranspose": {"filters": 3, "kernel_size": 3},
            "Cropping1D": {},
            "DepthwiseConv1D": {"kernel_size": 3},
            "GRU": {"units": 4},
            "GlobalAveragePooling1D": {},
            "GlobalMaxPooling1D": {},
            "LSTM": {"units": 4},
            "Masking": {"mask_value": 0.0},
            "MaxPooling1D": {},
            "Permute": {"dims": [2, 1]},
            "SeparableConv1D": {"filters": 3, "kernel_size": 3},
            "SimpleRNN": {"units": 4},
            "SpatialDropout1D": {"rate": 0.2},
            "UpSampling1D": {},
            "ZeroPadding1D": {},
        }.items()
    },
    "Add": (STEPS, _merged("Add")),
    "AdditiveAttention": (STEPS, _merged("AdditiveAttention")),
    "Attention": (STEPS, _merged("Attention", use_scale=True)),
    "Average": (STEPS, _merged("Average")),
    "Concatenate": (STEPS, _merged("Concatenate")),
    "Dot": (STEPS, _merged("Dot", axes=2)),
    "Maximum": (STEPS, _merged("Maximum")),
    "Minimum": (STEPS, _merged("Minimum")),
    "Multiply": (STEPS, _merged("Multiply")),
    "Subtract": (STEPS, _merged("Subtract")),
    "MultiHeadAttention": (STEPS, _shared("MultiHeadAttention", num_heads=2, key_dim=3)),
    "GroupQueryAttention": (
        STEPS,
        _shared("GroupQueryAttention", head_dim=3, num_query_heads=4, num_key_value_heads=2),
    ),
    "Bidirectional": (STEPS, _wrapped("Bidirectional", lambda layers: layers.LSTM(3))),
    # The wrapped layer has state that is derived from its weights.
    "TimeDistributed": (STEPS, _wrapped("TimeDistributed", lambda layers: layers.Normalization())),
    "RNN": (STEPS, _cell(lambda layers: layers.SimpleRNNCell(3))),
    "SimpleRNNCell": (STEPS, _cell(lambda layers: layers.SimpleRNNCell(4, activation="relu"))),
    "LSTMCell": (STEPS, _cell(lambda layers: layers.LSTMCell(3))),
    "GRUCell": (STEPS, _cell(lambda layers: layers.GRUCell(3))),
    "StackedRNNCells": (
        STEPS,
        _cell(lambda layers: layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)])),
    ),
    "STFTSpectrogram": (
        (256, 1),
        _plain("STFTSpectrogram", frame_length=32, frame_step=16, expand_dims=True),
    ),
    "MelSpectrogram": (
        (512,),
        _plain("MelSpectrogram", fft_length=64, sequence_stride=32, num_mel_bins=8, sampling_rate=8000),
    ),
    **{
        name: (PLANE, _plain(name, **config))
        for name, config in {
            "AdaptiveAveragePooling2D": {"output_size": 3},
            "AdaptiveMaxPooling2D": {"output_size": 3},
            "AutoContrast": {"value_range": [-3, 3]},
            "AveragePooling2D": {"pool_size": 2},
            "CenterCrop": {"height": 4, "width": 4},
            "Conv2D": {"filters": 3, "kernel_size": 3},
            "Conv2DTranspose": {"filters": 3, "kernel_size": 3},
            "Cropping2D": {},
            "DepthwiseConv2D": {"kernel_size": 3},
            "Equalization": {"value_range": [-3, 3]},
            "GlobalAveragePooling2D": {},
            "GlobalMaxPooling2D": {},
            "MaxPooling2D": {},
            "RandomBrightness": {"factor": 0.2, "value_range": [-3, 3]},
            "RandomColorDegeneration": {"factor": 0.2, "value_range": [-3, 3]},
            "RandomColorJitter": {"value_range": [-3, 3], "brightness_factor": 0.2},
            "RandomContrast": {"factor": 0.2, "value_range": [-3, 3]},
            "RandomCrop": {"height": 8, "width": 8},
            "RandomElasticTransform": {"value_range": [-3, 3]},
            "RandomErasing": {"value_range": [-3, 3]},
            "RandomFlip": {},
            "RandomGaussianBlur": {"value_range": [-3, 3]},
            "RandomGrayscale": {},
            "RandomHue": {"factor": 0.2, "value_range": [-3, 3]},
            "RandomInvert": {"value_range": [-3, 3]},
            "RandomPerspective": {},
            "RandomPosterization": {"factor": 4, "value_range": [-3, 3]},
            "RandomRotation": {"factor": 0.2},
            "RandomSaturation": {"factor": 0.2, "value_range": [-3, 3]},
            "RandomSharpness": {"factor": 0.2, "value_range": [-3, 3]},
            "RandomShear": {"x_factor": (0.1, 0.2), "y_factor": (0.1, 0.2)},
            "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2},
            "RandomZoom": {"height_factor": 0.2},
            "Resizing": {"height": 5, "width": 5},
            "SeparableConv2D": {"filters": 3, "kernel_size": 3},
            "Solarization": {"value_range": [-3, 3]},
            "SpatialDropout2D": {"rate": 0.2},
            "UpSampling2D": {},
            "ZeroPadding2D": {},
        }.items()
    },
    "ConvLSTM1D": ((3, 8, 2), _plain("ConvLSTM1D", filters=2, kernel_size=3)),
    "ConvLSTM2D": ((3, 6, 6, 2), _plain("ConvLSTM2D", filters=2, kernel_size=3)),
    "ConvLSTM3D": ((2, 4, 4, 4, 2), _plain("ConvLSTM3D", filters=2, kernel_size=3)),
    **{
        name: (CUBE, _plain(name, **config))
        for name, config in {
            "AdaptiveAveragePooling3D": {"output_size": 3},
            "AdaptiveMaxPooling3D": {"output_size": 3},
            "AveragePooling3D": {"pool_size": 2},
            "Conv3D": {"filters": 3, "kernel_size": 3},
            "Conv3DTranspose": {"filters": 3, "kernel_size": 3},
            "Cropping3D": {},
            "GlobalAveragePooling3D": {},
            "GlobalMaxPooling3D": {},
            "MaxPooling3D": {},
            "SpatialDropout3D": {"rate": 0.2},
            "UpSampling3D": {},
            "ZeroPadding3D": {},
        }.items()
    },
}


def net(keras: Any, name: str) -> Any:
    """Return a net with the named layer, and random weights of which none has its initial value."""
    shape, build = NETS[name]
    inputs = keras.Input(shape)
    out = build(keras.layers, inputs)
    flat = keras.layers.Flatten()(out) if len(out.shape) > 2 else out
    model = keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(flat), name="net")
    random = np.random.default_rng(1)
    drawn = [random.normal(0.3, 0.4, array.shape).astype(array.dtype) for array in model.get_weights()]
    put(model, [np.abs(a) + 0.1 if "var" in v.path else a for v, a in zip(model.weights, drawn, strict=True)])
    return model


def put(model: Any, weights: list[np.ndarray]) -> None:
    """Set the weights of a model, and finalize its Normalization layers, which set_weights does not do."""
    model.set_weights(weights)
    for layer in model._flatten_layers():
        if type(layer).__name__ == "Normalization":
            layer.finalize_state()


def rows(name: str, count: int = 10) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(count, *NETS[name][0])).astype(np.float32)
